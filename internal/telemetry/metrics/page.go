package metrics

import (
	"bufio"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// page writes series, family by family, as text or as protobuf messages. It writes text without the
// Prometheus client library, which takes fifty times longer (BenchmarkScrape): it builds, checks
// and sorts each series.
type page struct {
	w        *bufio.Writer // nil: protobuf messages instead
	err      error         // of the first write that failed
	line     []byte
	family   *Metric
	families []*dto.MetricFamily
}

// begin starts a family: its series follow.
func (p *page) begin(m *Metric) {
	p.family = m
	if p.w == nil {
		kind := map[Type]dto.MetricType{Counter: dto.MetricType_COUNTER, Gauge: dto.MetricType_GAUGE, Histogram: dto.MetricType_HISTOGRAM}[m.Type]
		p.families = append(p.families, &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &kind})
		return
	}
	p.line = append(append(append(append(p.line[:0], "# HELP "...), m.Name...), ' '), m.Help...)
	p.line = append(append(append(append(p.line, "\n# TYPE "...), m.Name...), ' '), m.Type...)
	p.line = append(p.line, '\n')
	p.write()
}

// end drops a family without series: it may have some only at times.
func (p *page) end() {
	if last := len(p.families) - 1; last >= 0 && len(p.families[last].Metric) == 0 {
		p.families = p.families[:last]
	}
}

// add writes a series, with the values of the family's labels in order. An empty value omits the
// label.
func (p *page) add(v float64, labels ...string) {
	if p.w != nil {
		p.sample("", v, "", labels)
		return
	}
	one := p.message(labels)
	switch p.family.Type {
	case Counter:
		one.Counter = &dto.Counter{Value: &v}
	default:
		one.Gauge = &dto.Gauge{Value: &v}
	}
}

func (p *page) message(labels []string) *dto.Metric {
	pairs := make([]*dto.LabelPair, 0, len(labels))
	for i, value := range labels {
		if value != "" {
			pairs = append(pairs, &dto.LabelPair{Name: &p.family.Labels[i], Value: &value})
		}
	}
	one := &dto.Metric{Label: pairs}
	last := p.families[len(p.families)-1]
	last.Metric = append(last.Metric, one)
	return one
}

// sample writes a line. bound is a histogram bucket's.
func (p *page) sample(suffix string, v float64, bound string, labels []string) {
	b := append(append(p.line[:0], p.family.Name...), suffix...)
	before := byte('{')
	for i, value := range labels {
		if value != "" {
			b = appendLabel(append(b, before), p.family.Labels[i], value)
			before = ','
		}
	}
	if bound != "" {
		b = appendLabel(append(b, before), "le", bound)
		before = ','
	}
	if before == ',' {
		b = append(b, '}')
	}
	p.line = append(appendValue(append(b, ' '), v), '\n')
	p.write()
}

func appendLabel(b []byte, name, value string) []byte {
	b = append(append(b, name...), '=', '"')
	if strings.ContainsAny(value, "\\\"\n") {
		value = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
	}
	return append(append(b, value...), '"')
}

// appendValue writes whole numbers without an exponent.
func appendValue(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

func (p *page) write() {
	if p.err == nil {
		_, p.err = p.w.Write(p.line)
	}
}
