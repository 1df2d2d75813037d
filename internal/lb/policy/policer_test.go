package policy

import (
	"errors"
	"strings"
	"testing"

	"loxilb/internal/lb"
)

// TestRates checks that rates are written in a form that reads back the same.
func TestRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"100": "100mbit", "0.01": "10kbit", "10kbit": "10kbit", "1.5gbit": "1500mbit", "1000gbit": "1000gbit", "1200bit": "1200bit", "10Kbit": "10kbit",
		"5000pps": "5kpps", "1pps": "1pps", "1.5kpps": "1500pps", "1000mpps": "1000mpps",
	} {
		r, err := ParseRate("rate", text)
		if err != nil || r.String() != want {
			t.Errorf("%s is %s, %v; want %s", text, r, err, want)
		}
		if again, err := ParseRate("rate", r.String()); err != nil || again != r {
			t.Errorf("%s is read back as %v, %v", r, again, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "999bit", "1001gbit", "nan", "inf", "1e400", "0x10", "10 mbit", "mbit", "0.5pps", "1001mpps", "10mb", "1_000"} {
		if r, err := ParseRate("rate", text); err == nil {
			t.Errorf("%q is parsed as %s", text, r)
		}
	}
}

// TestPolicerValidate checks that invalid values are refused by the name of their field.
func TestPolicerValidate(t *testing.T) {
	t.Parallel()
	good := func() Policer {
		return Policer{Name: "p", Committed: Rate{PerSecond: 1e6}, Peak: Rate{PerSecond: 2e6}, Attachment: Attachment{To: AttachPort, Name: "eth0"}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]struct {
		field string
		f     func(*Policer)
	}{
		"no name":            {lb.FieldIdent, func(p *Policer) { p.Name = "" }},
		"slash":              {lb.FieldName, func(p *Policer) { p.Name = "a/b" }},
		"slow":               {lb.FieldCommittedRate, func(p *Policer) { p.Committed.PerSecond = 999 }},
		"peak below":         {lb.FieldPeakRate, func(p *Policer) { p.Peak.PerSecond = 999_999 }},
		"units":              {lb.FieldPeakRate, func(p *Policer) { p.Peak.Packets = true }},
		"burst":              {lb.FieldCommittedBurst, func(p *Policer) { p.CommittedBurst = 1e6/8*86400 + 1 }},
		"excess":             {lb.FieldExcessBurst, func(p *Policer) { p.ExcessBurst = 1 << 63 }},
		"nothing":            {lb.FieldAttachment, func(p *Policer) { p.Attachment.To = 5 }},
		"long interface":     {lb.FieldTarget, func(p *Policer) { p.Attachment.Name = strings.Repeat("x", 16) }},
		"packets that leave": {lb.FieldDirection, func(p *Policer) { p.Attachment.Direction = DirectionOut }},
		"direction":          {lb.FieldDirection, func(p *Policer) { p.Attachment.Direction = "up" }},
		"no service":         {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachService} }},
		"bad key":            {lb.FieldService, func(p *Policer) { p.Attachment = Attachment{To: AttachService, Name: "10.0.0.1/tcp"} }},
		"bad prefix":         {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachSource, Name: "10.0.0.0/33"} }},
		"mapped prefix":      {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachSource, Name: "::ffff:10.0.0.0/104"} }},
		"bad rule":           {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachRule, Name: "sourceIP:x"} }},
		"impossible rule":    {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachRule, Name: "protocol:icmp,minSourcePort:5"} }},
		"no rule":            {lb.FieldTarget, func(p *Policer) { p.Attachment = Attachment{To: AttachRule} }},
	} {
		p := good()
		change.f(&p)
		var err *lb.FieldError
		if !errors.As(p.Validate(), &err) || err.Field != change.field {
			t.Errorf("%s: got %v, want an error about %s", name, err, change.field)
		}
	}
}

// TestAttachmentNormal checks that equal attachments have the same written form.
func TestAttachmentNormal(t *testing.T) {
	t.Parallel()
	for in, want := range map[Attachment]string{
		{To: AttachSource, Name: "10.1.2.3/8"}:                                  "10.0.0.0/8",
		{To: AttachSource, Name: "10.1.2.3"}:                                    "10.1.2.3/32",
		{To: AttachSource, Name: "2001:DB8:0::/32"}:                             "2001:db8::/32",
		{To: AttachService, Name: "web"}:                                        "web",
		{To: AttachService, Name: "10.0.0.1:80/tcp"}:                            "10.0.0.1:80/tcp",
		{To: AttachPort, Name: "eth0"}:                                          "eth0",
		{To: AttachRule, Name: "preference:5,sourceip:10.1.2.3/8,protocol:tcp"}: "sourceIP:10.0.0.0/8,protocol:6,preference:5",
	} {
		if got := in.Normal(); got.Name != want || got.Direction != DirectionIn {
			t.Errorf("%+v becomes %+v", in, got)
		}
	}
}
