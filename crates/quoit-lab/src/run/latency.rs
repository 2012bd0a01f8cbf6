//! The latencies of many slices as one curve.

use quoit_load::encoded;

/// The curve's points: percentile from 0 to 100, and nanoseconds. Histograms that cannot be read are left out; empty
/// without any.
pub(crate) fn curve<'a>(histograms: impl Iterator<Item = &'a str>) -> Vec<(f64, f64)> {
    let readable = histograms.filter(|text| encoded::decode(text).is_ok());
    let Some(merged) = encoded::merge(readable).ok().filter(|merged| !merged.is_empty()) else {
        return Vec::new();
    };
    let mut points = Vec::new();
    let mut point = |tail: f64| {
        let quantile = 1.0 - tail;
        points.push((quantile * 100.0, merged.value_at_quantile(quantile) as f64));
    };
    // Nine points for each factor of ten in the share beyond, as long as that is at least one request.
    let mut decade = 1.0;
    while decade * 0.1 * merged.len() as f64 >= 1.0 {
        for tenths in (2..=10).rev() {
            point(decade * f64::from(tenths) / 10.0);
        }
        decade /= 10.0;
    }
    point(0.0);
    points
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    fn written(values: impl Iterator<Item = u64>) -> String {
        let mut histogram = Histogram::<u64>::new(3).expect("three digits are allowed");
        for value in values {
            histogram.record(value).expect("it grows");
        }
        encoded::encode(&histogram)
            .expect("memory takes bytes")
            .unwrap_or_default()
    }

    #[test]
    fn histograms_are_merged_into_one_curve() {
        let [low, high] = [written(1..=500), written((501..=1000).chain([1_000_000]))];
        let points = curve([low.as_str(), "no histogram", high.as_str()].into_iter());
        assert_eq!(points.first().map(|point| point.0), Some(0.0));
        let at = |percentile: f64| {
            let near = |point: &&(f64, f64)| (point.0 - percentile).abs() < 1e-9;
            points.iter().find(near).expect("the point is there").1
        };
        assert_eq!(at(50.0), 501.0);
        assert!((at(99.0) - 991.0).abs() <= 1.0, "{points:?}");
        // Three digits are kept.
        assert!((at(100.0) - 1e6).abs() < 1e3);
        assert!(
            points.is_sorted_by(|one, other| one.0 < other.0 && one.1 <= other.1),
            "{points:?}"
        );
        // One request in a thousand is the last that can be told.
        assert_eq!(
            points.iter().filter(|point| point.0 > 99.91).count(),
            1,
            "{points:?}"
        );
    }

    #[test]
    fn without_histograms_there_is_no_curve() {
        assert!(curve(std::iter::empty()).is_empty());
        assert!(curve(["?"].into_iter()).is_empty());
        assert!(curve([written(std::iter::empty()).as_str()].into_iter()).is_empty());
    }
}
