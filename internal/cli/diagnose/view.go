package diagnose

import (
	"fmt"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/cli/session"
)

// SGR codes of emphasized text. They use the terminal's own colors, and no information is in a
// color alone.
const (
	bold    = "1"
	reverse = "7"
	red     = "31"
)

// view draws rates as text.
type view struct {
	glyphs  glyphs
	plain   bool // no styles
	width   int
	service string // the service whose endpoints are shown; "": all services
	sort    string
	trends  map[string][]float32 // by line: connections a second
	totals  [4][]float32         // connections, packets, bits in, bits out a second
	until   time.Time            // end of the last window

	refusing bool // something in the list has refused clients
}

func (v *view) style(code, text string) string {
	if v.plain {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[m"
}

// kept is the number of values in a trend.
const kept = 120

func keep(values []float32, v float32) []float32 {
	if len(values) == kept {
		values = values[:copy(values, values[1:])]
	}
	return append(values, v)
}

// remember adds an update to the trends. Lines that no longer exist are dropped; a repeated window
// does not count again.
func (v *view) remember(u *v1.RatesUpdate) {
	again := u.Total.Time.Equal(v.until) || u.Total.Seconds == 0 // a daemon that has just started has no rates yet
	v.until = u.Total.Time
	r := &u.Total.Rates
	for i, n := range [...]float32{r.Connections, r.PacketsIn + r.PacketsOut, 8 * r.BytesIn, 8 * r.BytesOut} {
		if !again {
			v.totals[i] = keep(v.totals[i], n)
		}
	}
	now := map[string][]float32{}
	v.refusing = false
	for _, one := range rateLines(u, v.service) {
		v.refusing = v.refusing || one.refused > 0
		now[one.key] = v.trends[one.key]
		if !again || len(now[one.key]) == 0 {
			now[one.key] = keep(now[one.key], one.rates.Connections)
		}
	}
	v.trends = now
}

// heads returns the lines about all services together.
func (v *view) heads(u *v1.RatesUpdate) []string {
	t := &u.Total
	used := 0.0
	if t.ConnectionsMax > 0 {
		used = 100 * float64(t.Connections) / float64(t.ConnectionsMax)
	}
	down := ""
	if t.EndpointsDown > 0 {
		down = fmt.Sprintf(" (%d down)", t.EndpointsDown)
	}
	first := fmt.Sprintf("%s (%.1f s)  %s  %d endpoints%s  table %s/%s %.0f%%", t.Time.Local().Format("15:04:05"), t.Seconds, services(t.Services), t.Endpoints, down,
		short(float64(t.Connections)), short(float64(t.ConnectionsMax)), used)
	half := max(8, (v.width-2)/2-16)
	pair := func(left string, a int, right string, b int) string {
		part := func(title string, i int) string {
			now := float32(0)
			if n := len(v.totals[i]); n > 0 {
				now = v.totals[i][n-1]
			}
			return fmt.Sprintf("%-8s %5s  ", title, short(float64(now))) + v.glyphs.sparkline(v.totals[i], half)
		}
		return part(left, a) + "  " + part(right, b)
	}
	return []string{
		v.style(bold, first),
		pair("conn/s", 0, "pkt/s", 1),
		pair("in b/s", 2, "out b/s", 3),
		fmt.Sprintf("repeated SYNs %s/s  failed handshakes %s/s  challenged %s/s  half-open %s",
			short(float64(t.Rates.RepeatedSyns)), short(float64(t.Rates.FailedHandshakes)), short(float64(t.Challenges)), short(float64(t.HalfOpen))),
		drops(t),
	}
}

// drops returns a line about packets that are dropped now, or were.
func drops(t *v1.TotalRates) string {
	var now, before []string
	for _, d := range t.Drops {
		if d.Rate > 0 {
			now = append(now, d.Reason+" "+short(float64(d.Rate)))
		} else {
			before = append(before, d.Reason+" "+short(float64(d.Packets)))
		}
	}
	switch {
	case len(now) > 0:
		return fmt.Sprintf("drops %s/s: %s", short(float64(t.Dropped)), strings.Join(now, ", "))
	case len(before) > 0:
		return "drops 0/s; so far: " + strings.Join(before, ", ")
	}
	return "drops 0/s"
}

// serviceLine returns a line about the chosen service.
func (v *view) serviceLine(u *v1.RatesUpdate) string {
	for _, s := range u.List.Services {
		if s.Service == v.service {
			text := s.Service
			if s.Name != "" {
				text += "  " + session.OneLine(s.Name)
			}
			text += fmt.Sprintf("  %s  %d endpoints", s.Selection, s.EndpointCount)
			text += fmt.Sprintf(", %s, %d down, %d drained", s.State, s.EndpointsDown, s.EndpointsDrained)
			return fmt.Sprintf("%s  %s conn/s  %s active  %s inactive  %s refused", text, short(float64(s.Rates.Connections)), short(float64(s.Active)),
				short(float64(s.Inactive)), short(float64(s.Refused)))
		}
	}
	return v.service
}
