//! What `--help` says beside the options.

pub(super) const EXAMPLES: &str = "\
Examples:
  quoit load http --connect http://127.0.0.1:8080/plaintext
  quoit load http --connect 127.0.0.1:8080 --path /plaintext --connections 256 --pipeline 16
  quoit load http --connect 127.0.0.1:8080 --path /echo --body 65536 --connections 8
  quoit load http --connect http://127.0.0.1:8080/plaintext --expect 'Hello, World!'
  quoit load echo --connect [::1]:7000 --size 1024 --threads 2 --seconds 10
  quoit load echo --connect unix:/run/echo.sock --requests 100000 --json
  quoit load echo --connect unix:@echo --warmup 0
  quoit load rpc --connect 127.0.0.1:7000 --connections 16 --streams 1000 --messages 32
  quoit load rpc --connect 127.0.0.1:7000 --connections 1 --messages 0 --credit 70000 --size 1024
  quoit load rpc --connect 127.0.0.1:7000 --streams 100 --messages 0 --push 1 --every 1
  quoit load rpc --connect 127.0.0.1:7000 --streams 100 --sizes 128:90,65536:10
  quoit load http --connect 127.0.0.1:8080 --rate 20000 --pipeline 8 --interval 1
  quoit load http --connect 127.0.0.1:8080 --churn --connections 16
  quoit load echo --connect 127.0.0.1:7000 --sizes 64:80,1024:15,65536:5 --slow 8:500 --hdr load.hlog
  quoit load echo --connect 127.0.0.1:7000 --connections 50000 --source 127.0.0.2-127.0.0.3 --ramp-up 10
  quoit load udp --connect 127.0.0.1:9000 --mode sendmmsg --count 1000000

From many machines, each with a number of its own, and then their reports as one:
  quoit load http --connect 192.0.2.1:8080 --rate 50000 --json \\
      --start-at 2026-11-27T14:00:00Z --label 3 --seed 3 > 3.json
  quoit load merge 0.json 1.json 2.json 3.json

Exit status: 0 if every reply was right, 1 if the run failed or its figures are invalid (any error),
2 for wrong usage. SIGINT and SIGTERM end the run early, and what was measured is still reported; a second
SIGINT ends it at once.";

pub(super) const MERGE_EXAMPLES: &str = "\
Examples:
  quoit load merge 0.json 1.json 2.json
  quoit load merge --json --hdr all.hlog results/*.json

Counts are added, and percentiles are those of all latencies in one histogram. Runs that were slow,
started late, ended early or fell behind are named as stragglers. docs/load.md says what each of
these means, and what the JSON object has.

Exit status: 0 if the figures of all runs can be used, 1 if those of one cannot, if their windows do
not overlap or if they cannot be merged, 2 for wrong usage.";

pub(super) const JSON_FIELDS: &str = "\
Fields of the JSON object (units in the names; null: nothing to say; docs/load.md says more):
  version                        of the program
  protocol, target, label, message_bytes and message_sizes (echo, rpc) or path (http),
  request_body_bytes (http with --body),
  connections, pipeline, threads, offered_per_second, schedule, batch, seed,
  churn, displaced_bytes, slow_connections, ramp_up_seconds, warmup_seconds   what was run
  start_at                       when the measured window was to begin
  started_late_seconds           how much later it began
  window_started_at              when it began, in seconds since 1970
  elapsed_seconds                its length
  sent_requests                  over the whole run, but not the check before it
  received_replies               over the whole run, right or wrong
  requests                       replies of the window that were wholly right
  requests_per_second            requests by elapsed_seconds
  rate                           over the intervals: mean, standard_deviation,
                                 within_standard_deviation (share, 0 to 1)
  received_bytes                 bytes received in the window
  received_megabytes_per_second  in millions of bytes
  latency                        from a request's write (with --rate: from when
                                 it was due) to its reply's last read, of all
                                 requests: mean_ns, standard_deviation_ns,
                                 within_standard_deviation, p50_ns, p90_ns,
                                 p99_ns, p99_9_ns, max_ns
  latency_at_least               the same, each without the time in which the
                                 generator did not run meanwhile
  slipped_share                  share of the latencies that have such time
  slipping                       whether that may be more than a tenth of them
  slips                          gaps in which the generator did not run:
                                 limit_ns, count, total_ns, longest_ns
  lag                            how late the generator wrote requests that
                                 were due: count, mean_ns, p50_ns, p99_ns,
                                 max_ns
  lagging                        whether that is more than half of the latency
  unsent_requests                due in the window and not sent by its end
  unanswered_requests            sent, and no reply by its end
  connects                       time to connect; fields as in lag
  slow_replies                   right replies on slow connections
  errors                         counts over the whole run, warm-up included
    connect_refused, connect_other           connection attempts
    reset, closed_early, timeouts            open connections
    wrong_content, wrong_status              replies
    lost_requests                            requests without a reply
  first_error                    the first error in words
  reconnects                     connections opened again
  repeated_requests              requests sent once more, as they were sent behind one whose reply announced the end
  generator_cpu_ns_per_request   user and system time of the load's threads
  generator_cpu_utilization      0 to 1; near 1 the generator may be the limit
  interrupted                    whether the run was ended before its time
  invalid                        why the figures must not be used
  intervals                      at_seconds, requests, requests_per_second,
                                 p50_ns, p99_ns, errors
  histogram_unit                 ns: of the values in histograms
  histogram, histogram_at_least, lag_histogram, connects_histogram
                                 HdrHistogram V2, compressed, base64
  merged                         of merged reports only";

pub(super) const RPC_JSON_FIELDS: &str = "\
With rpc, `requests` are messages, `pipeline` is streams per connection, and `latency` is that of
messages, one way: from the server's send time (of a push: when it was due) to this end's read of
the whole message. It means something on one machine only; use --untimed otherwise. --rate offers
streams, not messages. Besides:
  rpc
    direction, messages_per_stream, credit, push, every_seconds   what was run
    streams_ended                streams of the window that came to their right end
    stream_latency, stream_histogram
                                 as latency and its histogram: from a stream's opening (with --rate, from when
                                 that was due) to its end";

pub(super) const UDP_EXAMPLES: &str = "\
Examples:
  quoit load udp --connect 127.0.0.1:9000 --count 10000000
  quoit load udp --connect 127.0.0.1:9000 --mode gso --senders 2 --rate 500000 --seconds 10 --json
  quoit load udp --connect 127.0.0.1:9000 --mode sendmmsg --batch 64 --source 127.0.0.2-127.0.0.3 --senders 2
  quoit load udp --connect 127.0.0.1:9000 --shutdowns 1000 --shutdown-every 100 --shutdown-size 100
  quoit load udp --connect [::1]:9000 --echo --rate 20000 --sizes 64:80,1024:15,8192:5
  quoit load udp --connect 127.0.0.1:9000 --echo --outstanding 32 --senders 4 --size 64

Every datagram carries a run, a sender and a number. So its receiver counts exactly what is lost,
duplicated or out of order: `quoit serve udp-sink`, and with --echo this program. A sink
ends when shutdown datagrams of all senders have come; they say how much each sender has sent.

Exit status: 0 after a run, whatever was lost; 1 if it failed, if a reply was wrong or if none came;
2 for wrong usage. SIGINT and SIGTERM end the run early, with its shutdown datagrams; a second SIGINT
ends it at once.";

pub(super) const UDP_JSON_FIELDS: &str = "\
Fields of the JSON object (units in the names; null: nothing to say; docs/load.md says more):
  protocol, target, mode, batch, datagram_bytes, datagram_sizes, senders,
  run, offered_per_second        what was run
  started_at                     in seconds since 1970
  elapsed_seconds                from the beginning to the last datagram sent
  sent                           datagrams that the kernel took
  sent_per_second, sent_megabytes_per_second
  send_calls                     system calls that sent them
  send_failures                  calls refused for want of memory, and repeated
  lag                            how late batches were sent: count, mean_ns,
                                 p50_ns, p99_ns, max_ns
  lagging                        whether less than 99 % of the rate was sent
  replies                        with --echo
    received                     datagrams that got a right reply
    received_per_second          by elapsed_seconds
    lost                         sent, and no reply in time
    duplicates, reordered        replies that came again, or after a later one
    wrong, foreign               replies of wrong content, or to nothing sent
    first_error                  the first wrong reply in words
    latency                      mean_ns, standard_deviation_ns,
                                 within_standard_deviation, p50_ns, p90_ns,
                                 p99_ns, p99_9_ns, max_ns
  shutdown                       datagrams, bytes, every_seconds, ended_early
  generator_cpu_ns_per_datagram  user and system time of the senders' threads
  generator_cpu_utilization      0 to 1; near 1 the senders may be the limit
  interrupted                    whether the run was ended before its time
  invalid                        why the figures must not be used";
