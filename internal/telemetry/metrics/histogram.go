package metrics

import (
	"math"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"

	"loxilb/internal/lb/report"
)

// The data path counts handshakes in buckets, each twice as wide as the previous one. A classic
// histogram has the same buckets. In a native histogram, whose buckets end at powers of two (schema
// 0), each maps to the bucket with the largest overlap, and the first one to the bucket of zero.

// handshakeSum estimates the total duration of all handshakes, which the data path does not count.
func handshakeSum(h *report.Handshakes, jiffy time.Duration) (sum float64) {
	for i, n := range h.Answered {
		middle := 0.75 // of a bucket that begins at the half of its end
		if i == 0 {
			middle = 0.5
		}
		sum += float64(n) * middle * report.HandshakeBound(i, jiffy).Seconds()
	}
	return sum
}

// addHandshakes writes a histogram of the times of handshakes.
func (p *page) addHandshakes(h *report.Handshakes, jiffy time.Duration, labels ...string) {
	if p.w == nil {
		p.message(labels).Histogram = handshakeMessage(h, jiffy, p.family.When != Native)
		return
	}
	var count uint64
	for i, n := range h.Answered {
		count += n
		bound := "+Inf"
		if i < len(h.Answered)-1 {
			bound = strconv.FormatFloat(report.HandshakeBound(i, jiffy).Seconds(), 'g', -1, 64)
		}
		p.sample("_bucket", float64(count), bound, labels)
	}
	p.sample("_sum", handshakeSum(h, jiffy), "", labels)
	p.sample("_count", float64(count), "", labels)
}

// handshakeMessage has both kinds of buckets, or native ones alone.
func handshakeMessage(h *report.Handshakes, jiffy time.Duration, classic bool) *dto.Histogram {
	count, sum := h.AllAnswered(), handshakeSum(h, jiffy)
	shift := int32(math.Ceil(math.Log2(jiffy.Seconds()) - 0.5)) // the first bucket is up to 2^shift
	zero := math.Exp2(float64(shift))
	out := &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, Schema: new(int32), ZeroThreshold: &zero, ZeroCount: &h.Answered[0],
	}
	var before uint64
	spanned := uint32(len(h.Answered) - 1)
	offset := shift + 1
	out.PositiveSpan = []*dto.BucketSpan{{Offset: &offset, Length: &spanned}}
	for _, n := range h.Answered[1:] {
		out.PositiveDelta = append(out.PositiveDelta, int64(n)-int64(before))
		before = n
	}
	if !classic {
		return out
	}
	var below uint64
	for i, n := range h.Answered[:len(h.Answered)-1] {
		below += n
		up, bound := below, report.HandshakeBound(i, jiffy).Seconds()
		out.Bucket = append(out.Bucket, &dto.Bucket{CumulativeCount: &up, UpperBound: &bound})
	}
	return out
}

// scale describes the buckets of a report.Histogram: bucket i ends at 2^(i+exponent). A native
// histogram has the same buckets; a classic one has every second of them, from first on.
type scale struct {
	exponent    int
	first, last int // of the classic buckets
}

var (
	lifeScale  = scale{exponent: -20, first: 10, last: 40} // 1 ms to 12 days
	bytesScale = scale{exponent: 0, first: 6, last: 40}    // 64 bytes to 1 TiB
)

// bound returns where a bucket ends.
func (s scale) bound(bucket int) float64 { return math.Ldexp(1, bucket+s.exponent) }

// classic calls f with the end of each classic bucket, and the cumulative count.
func (s scale) classic(h *report.Histogram, f func(bound float64, below uint64)) {
	var below uint64
	for i := 0; i <= s.last; i++ {
		below += h.Buckets[i]
		if i >= s.first && (i-s.first)%2 == 0 {
			f(s.bound(i), below)
		}
	}
}

// addHistogram writes a histogram of the data path, whose buckets are powers of two.
func (p *page) addHistogram(h *report.Histogram, s scale, labels ...string) {
	sum := math.Ldexp(float64(h.Sum), s.exponent)
	if p.w == nil {
		p.message(labels).Histogram = histogramMessage(h, s, sum)
		return
	}
	s.classic(h, func(bound float64, below uint64) {
		p.sample("_bucket", float64(below), strconv.FormatFloat(bound, 'g', -1, 64), labels)
	})
	count := float64(h.Count())
	p.sample("_bucket", count, "+Inf", labels)
	p.sample("_sum", sum, "", labels)
	p.sample("_count", count, "", labels)
}

func histogramMessage(h *report.Histogram, s scale, sum float64) *dto.Histogram {
	count, zero := h.Count(), s.bound(0)
	offset, spanned := int32(s.exponent)+1, uint32(len(h.Buckets)-1)
	out := &dto.Histogram{
		SampleCount: &count, SampleSum: &sum, Schema: new(int32), ZeroThreshold: &zero, ZeroCount: &h.Buckets[0],
		PositiveSpan: []*dto.BucketSpan{{Offset: &offset, Length: &spanned}},
	}
	var before uint64
	for _, n := range h.Buckets[1:] {
		out.PositiveDelta = append(out.PositiveDelta, int64(n)-int64(before))
		before = n
	}
	s.classic(h, func(bound float64, below uint64) {
		out.Bucket = append(out.Bucket, &dto.Bucket{CumulativeCount: &below, UpperBound: &bound})
	})
	return out
}
