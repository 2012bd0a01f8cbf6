package io.quoit.netty;

import java.util.List;

/**
 * How often values of each magnitude came, since the loop was made.
 *
 * @param name its name, such as {@code flush_nanos}
 * @param about what it is, in one line
 * @param counts how often values came: of 0, of 1, of 2 to 3, of 4 to 7, and so on by powers of two; as many as are needed.
 *     Of {@code enter_submissions} and {@code enter_completions} there are always ten, of which the last counts all from 256 on
 * @param sum of all values
 */
public record QuoitHistogram(String name, String about, List<Long> counts, long sum) {
    /**
     * How many values came.
     *
     * @return their number
     */
    public long count() {
        return counts.stream().mapToLong(Long::longValue).sum();
    }

    /**
     * The largest value that a bucket counts.
     *
     * @param bucket the bucket's place in {@link #counts()}
     * @return 0, 1, 3, 7, ...
     */
    public static long most(int bucket) {
        return (1L << bucket) - 1;
    }

    /**
     * A value that so many of the values do not exceed; true to a power of two.
     *
     * @param share 0 to 1: 0.99 for the 99th percentile
     * @return the largest value of the bucket in which that one lies; 0 if there are no values
     * @throws IllegalArgumentException if the share is not 0 to 1
     */
    public long percentile(double share) {
        if (!(share >= 0 && share <= 1)) {
            throw new IllegalArgumentException("a share must be from 0 to 1, not " + share);
        }
        double left = share * count();
        for (int bucket = 0; bucket < counts.size(); bucket++) {
            left -= counts.get(bucket);
            if (left <= 0) {
                return most(bucket);
            }
        }
        return counts.isEmpty() ? 0 : most(counts.size() - 1);
    }
}
