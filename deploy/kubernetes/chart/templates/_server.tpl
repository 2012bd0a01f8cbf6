{{/* What the samples of the doors are told, and where they are probed. Each takes the same values in its own way. */}}

{{- define "quoit.name" -}}
{{- .Release.Name | trunc 48 | trimSuffix "-" -}}
{{- end -}}

{{- define "quoit.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "quoit.labels" -}}
{{ include "quoit.selector" . }}
app.kubernetes.io/component: {{ .Values.server }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* Whether it has a port of its own for metrics and probes. */}}
{{- define "quoit.hasMetrics" -}}
{{- if has .Values.server (list "serve" "go" "netty") -}}yes{{- end -}}
{{- end -}}

{{- define "quoit.probePort" -}}
{{- if include "quoit.hasMetrics" . -}}metrics{{- else -}}serving{{- end -}}
{{- end -}}

{{- define "quoit.gracePeriod" -}}
{{- $least := int (add .Values.preStopSeconds .Values.drainSeconds 5) -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- $least -}}
{{- else -}}
{{- if lt (int $given) $least -}}
{{- fail (printf "terminationGracePeriodSeconds is %d, but preStopSeconds (%d), drainSeconds (%d) and 5 s to end take %d: raise it, or leave it out" (int $given) (int .Values.preStopSeconds) (int .Values.drainSeconds) $least) -}}
{{- end -}}
{{- int $given -}}
{{- end -}}
{{- end -}}

{{/* What a schema cannot say: values that do not go together. */}}
{{- define "quoit.check" -}}
{{- $v := .Values -}}
{{- if and (ne $v.server "serve") (eq $v.image.repository "quoit") -}}
{{- fail (printf "image.repository is quoit, whose image has no %s in it: name the image that you built" $v.server) -}}
{{- end -}}
{{- if and $v.pinLoops (not $v.exclusiveCpus) -}}
{{- fail "pinLoops needs exclusiveCpus: pods that share processors would pin their loops to the same ones" -}}
{{- end -}}
{{- if and $v.pinLoops (has $v.server (list "go" "netty")) -}}
{{- fail (printf "pinLoops is not for %s, which cannot pin its loops: leave it out" $v.server) -}}
{{- end -}}
{{- if $v.exclusiveCpus -}}
{{- if mod (int $v.cpuMillis) 1000 -}}
{{- fail (printf "cpuMillis is %d, and exclusiveCpus gives whole processors: make it a multiple of 1000" (int $v.cpuMillis)) -}}
{{- end -}}
{{- if lt (int $v.cpuMillis) (mul 1000 (int $v.loops) | int) -}}
{{- fail (printf "cpuMillis is %d, and %d loops with exclusiveCpus need a processor each: raise it, or lower loops" (int $v.cpuMillis) (int $v.loops)) -}}
{{- end -}}
{{- end -}}
{{- /* docs/containers.md: what loops and connections may take at most, but for the sockets' buffers. */ -}}
{{- $need := add 8 (mul 82 (int $v.loops)) (div (mul (int $v.loops) (int $v.connections) 2) 1024) | int -}}
{{- if lt (int $v.memoryMiB) $need -}}
{{- fail (printf "memoryMiB is %d, and %d loops with %d connections each may take %d: raise it, or lower loops or connections" (int $v.memoryMiB) (int $v.loops) (int $v.connections) $need) -}}
{{- end -}}
{{- if and (eq $v.seccomp.type "Localhost") (not $v.seccomp.localhostProfile) -}}
{{- fail "seccomp.type is Localhost, and seccomp.localhostProfile names no file: name one, such as profiles/quoit.json" -}}
{{- end -}}
{{- if and (ne $v.seccomp.type "Localhost") $v.seccomp.localhostProfile -}}
{{- fail (printf "seccomp.localhostProfile is for the type Localhost, and seccomp.type is %s" $v.seccomp.type) -}}
{{- end -}}
{{- if and (include "quoit.hasMetrics" .) (eq (int $v.port) (int $v.metricsPort)) -}}
{{- fail (printf "port and metricsPort are both %d: each needs its own" (int $v.port)) -}}
{{- end -}}
{{- if and $v.serviceMonitor.enabled (not (include "quoit.hasMetrics" .)) -}}
{{- fail (printf "serviceMonitor is not for %s, which serves no metrics" $v.server) -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if and (eq $v.autoscaling.metric "loops") (ne $v.server "serve") -}}
{{- fail (printf "autoscaling.metric is loops, which %s does not tell of: take cpu" $v.server) -}}
{{- end -}}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas is %d, and maxReplicas %d: the first may not be more" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "quoit.arguments" -}}
{{- $v := .Values -}}
{{- if eq $v.server "serve" }}
- serve
- {{ $v.protocol }}
- --listen=[::]:{{ int $v.port }}
- --metrics=[::]:{{ int $v.metricsPort }}
- --engine={{ $v.engine }}
- --loops={{ int $v.loops }}
- --connections={{ int $v.connections }}
- --drain={{ int $v.drainSeconds }}
{{- if $v.pinLoops }}
- --pin
{{- end }}
{{- else if eq $v.server "axum" }}
- --listen=[::]:{{ int $v.port }}
- --engine={{ $v.engine }}
- --loops={{ int $v.loops }}
- --connections={{ int $v.connections }}
- --drain={{ int $v.drainSeconds }}
{{- if $v.pinLoops }}
- --pin
{{- end }}
{{- else if eq $v.server "go" }}
- -listen=:{{ int $v.port }}
- -metrics=:{{ int $v.metricsPort }}
- -engine={{ $v.engine }}
- -loops={{ int $v.loops }}
- -connections={{ int $v.connections }}
- -drain={{ int $v.drainSeconds }}s
{{- else if eq $v.server "netty" }}
- --listen=[::]:{{ int $v.port }}
- --metrics=[::]:{{ int $v.metricsPort }}
- --engine={{ $v.engine }}
- --loops={{ int $v.loops }}
- --connections={{ int $v.connections }}
- --drain={{ int $v.drainSeconds }}
{{- end }}
{{- range $v.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Kestrel reads its configuration from variables, which an image sets none of. */}}
{{- define "quoit.variables" -}}
{{- $v := .Values -}}
{{- if eq $v.server "kestrel" }}
- name: ASPNETCORE_URLS
  value: http://[::]:{{ int $v.port }}
- name: Kestrel__Quoit__Engine
  value: {{ get (dict "auto" "Auto" "uring" "IoUring" "epoll" "Epoll") $v.engine }}
- name: Kestrel__Quoit__Loops
  value: {{ int $v.loops | quote }}
- name: Kestrel__Quoit__Connections
  value: {{ int $v.connections | quote }}
- name: Kestrel__Quoit__PinLoops
  value: {{ $v.pinLoops | quote }}
- name: ASPNETCORE_shutdownTimeoutSeconds
  value: {{ int $v.drainSeconds | quote }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
