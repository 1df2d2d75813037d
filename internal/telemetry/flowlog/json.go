package flowlog

import (
	"bytes"
	"encoding/json"
	"time"

	"loxilb/internal/lb/report"
)

// record is a line, with the names of the API's events.
type record struct {
	Time       time.Time `json:"time"`
	Act        string    `json:"act"` // opened, assured, closing, ended; or untold
	Protocol   string    `json:"protocol,omitempty"`
	Client     string    `json:"client,omitempty"`
	VIP        string    `json:"vip,omitempty"`
	Source     string    `json:"source,omitempty"`
	Endpoint   string    `json:"endpoint,omitempty"`
	ServName   string    `json:"servName,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	ClosedBy   string    `json:"closedBy,omitempty"`
	PacketsIn  *uint64   `json:"packetsIn,omitempty"` // and the following: of connections that have ended
	BytesIn    *uint64   `json:"bytesIn,omitempty"`
	PacketsOut *uint64   `json:"packetsOut,omitempty"`
	BytesOut   *uint64   `json:"bytesOut,omitempty"`
	OneOf      int       `json:"oneOf,omitempty"` // one of this many connections is reported
	Lost       uint64    `json:"lost,omitempty"`  // of untold: lost events since the start of the daemon
}

func recordOf(e *report.ConnectionEvent) record {
	r := record{
		Time: e.Time.UTC(), Act: e.Act, Protocol: e.Protocol.String(), Client: e.Client.String(), VIP: e.VIP.String(), Source: e.Source.String(),
		Endpoint: e.Endpoint.String(), ServName: e.Service, Reason: e.Reason, ClosedBy: e.By,
	}
	if e.Reason != "" {
		r.PacketsIn, r.BytesIn, r.PacketsOut, r.BytesOut = &e.In.Packets, &e.In.Bytes, &e.Out.Packets, &e.Out.Bytes
	}
	if e.OneOf > 1 {
		r.OneOf = e.OneOf
	}
	return r
}

// Writer is where lines go: each call has whole lines.
type Writer interface {
	Write(lines []byte) (int, error)
	Name() string
	Close() error
}

// JSON writes a line for each event.
type JSON struct {
	Writer
	lines bytes.Buffer
	said  uint64 // how many were lost
}

// NewJSON writes lines to w.
func NewJSON(w Writer) *JSON { return &JSON{Writer: w} }

// Write writes events. It does not retry failures.
func (j *JSON) Write(now time.Time, events []report.ConnectionEvent, lost uint64) error {
	j.lines.Reset()
	lines := json.NewEncoder(&j.lines)
	lines.SetEscapeHTML(false)
	if lost != j.said {
		if err := lines.Encode(record{Time: now.UTC(), Act: "untold", Lost: lost}); err != nil {
			return err
		}
	}
	for i := range events {
		if err := lines.Encode(recordOf(&events[i])); err != nil {
			return err
		}
	}
	if j.lines.Len() == 0 {
		return nil
	}
	if _, err := j.Writer.Write(j.lines.Bytes()); err != nil {
		return err
	}
	j.said = lost
	return nil
}
