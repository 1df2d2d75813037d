package diagnose

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// line is a service or an endpoint.
type line struct {
	key, name string
	up        string // serving endpoints of all, or the state
	bad       bool   // something is down
	active    uint64
	refused   uint64
	rates     *v1.Rates
}

// rateLines returns the lines of an update: services, or endpoints of the chosen service.
func rateLines(u *v1.RatesUpdate, service string) []line {
	var out []line
	if service != "" {
		for _, s := range u.List.Services {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				out = append(out, line{key: e.Endpoint, name: fmt.Sprint("weight ", e.Weight), up: e.State, bad: e.State == "down" || e.State == "panic", active: e.Active, refused: e.Refused, rates: &e.Rates})
			}
		}
		return out
	}
	for i := range u.List.Services {
		s := &u.List.Services[i]
		up := servingCell(s)
		out = append(out, line{key: s.Service, name: session.OneLine(s.Name), up: up, bad: s.EndpointsDown > 0 || s.State == "failed", active: s.Active, refused: s.Refused, rates: &s.Rates})
	}
	return out
}

// servingCell returns "N of M" endpoints serving; or the state of a service without a serving one.
func servingCell(s *v1.ServiceRates) string {
	up := fmt.Sprintf("%d/%d", s.EndpointsUp, s.EndpointCount)
	switch {
	case s.EndpointsUp == 0 && s.State != "":
		return s.State
	case len(up) > upWidth:
		return fmt.Sprintf("%d%%", 100*s.EndpointsUp/s.EndpointCount)
	}
	return up
}

// column is a column of the list, after the first.
type column struct {
	title string
	width int
	order string // the server's sort order for this column
	value func(*line) string
}

const upWidth = 8

func columns() []column {
	rate := func(of func(*v1.Rates) float32) func(*line) string {
		return func(l *line) string { return short(float64(of(l.rates))) }
	}
	return []column{
		{"UP", upWidth, "down", func(l *line) string { return l.up }},
		{"ACTIVE", 6, "active", func(l *line) string { return short(float64(l.active)) }},
		{"CONN/S", 6, "connections", rate(func(r *v1.Rates) float32 { return r.Connections })},
		{"PKT/S", 6, "packets", rate(func(r *v1.Rates) float32 { return r.PacketsIn + r.PacketsOut })},
		{"IN b/s", 7, "bytesIn", rate(func(r *v1.Rates) float32 { return 8 * r.BytesIn })},
		{"OUT b/s", 7, "bytesOut", rate(func(r *v1.Rates) float32 { return 8 * r.BytesOut })},
		{"RESYN", 5, "repeatedSyns", rate(func(r *v1.Rates) float32 { return r.RepeatedSyns })},
		{"FAIL", 5, "failedHandshakes", rate(func(r *v1.Rates) float32 { return r.FailedHandshakes })},
	}
}

// refusedColumn returns the number of clients' packets refused so far.
func refusedColumn() column {
	return column{title: "REFUSED", width: 7, value: func(l *line) string { return short(float64(l.refused)) }}
}

// visibleColumns returns the columns for the last update: refused clients only if there were any.
// On a narrow screen they replace repeated SYNs.
func (v *view) visibleColumns() []column {
	all := columns()
	if !v.refusing {
		return all
	}
	refused := refusedColumn()
	if v.width < narrow+refused.width+1 {
		all = slices.DeleteFunc(all, func(c column) bool { return c.order == "repeatedSyns" && v.sort != c.order })
	}
	return append(all, refused)
}

// layout has the widths of flexible columns.
type layout struct{ key, name, trend int }

const (
	narrow    = 80
	nameWidth = 16
	maxTrend  = 40
)

func newLayout(width int, columns []column) layout {
	left := width - 1 // the cursor's place
	for _, c := range columns {
		left -= c.width + 1
	}
	l := layout{key: max(left, 8)}
	if spare := width - narrow; spare > nameWidth {
		l.name = nameWidth
		l.key -= nameWidth + 1
	}
	if wanted := 26; l.key > wanted+10 {
		l.trend = min(l.key-wanted-1, maxTrend)
		l.key -= l.trend + 1
	}
	return l
}

// heading returns the titles of the columns; the sort column is marked.
func (v *view) heading(l layout) string {
	first := "SERVICE"
	if v.service != "" {
		first = "ENDPOINT"
	}
	var b strings.Builder
	b.WriteString(" " + v.fit(first, l.key))
	if l.name > 0 {
		b.WriteString(" " + v.fit("NAME", l.name))
	}
	for _, c := range v.visibleColumns() {
		title := c.title
		if c.order == "down" && v.service != "" {
			title = "STATE"
		}
		text := fmt.Sprintf("%*s", c.width, title)
		if c.order == v.sort || v.sort == "bytes" && strings.HasPrefix(c.order, "bytes") {
			text = v.style(reverse, text)
		}
		b.WriteString(" " + text)
	}
	if l.trend > 0 {
		b.WriteString(" " + v.fit("CONN/S", l.trend))
	}
	return b.String()
}

// row returns a line of the list.
func (v *view) row(l layout, one *line, chosen bool) string {
	var b strings.Builder
	mark := " "
	if chosen {
		mark = ">"
	}
	b.WriteString(mark + v.fit(one.key, l.key))
	if l.name > 0 {
		b.WriteString(" " + v.fit(one.name, l.name))
	}
	for _, c := range v.visibleColumns() {
		b.WriteString(fmt.Sprintf(" %*s", c.width, c.value(one)))
	}
	if l.trend > 0 {
		b.WriteString(" " + v.glyphs.sparkline(v.trends[one.key], l.trend))
	}
	switch {
	case chosen:
		return v.style(reverse, b.String())
	case one.bad:
		return v.style(red, b.String())
	}
	return b.String()
}

// fit pads or cuts a text to a width.
func (v *view) fit(text string, width int) string {
	text = ansi.Truncate(text, width, v.glyphs.cut)
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}
