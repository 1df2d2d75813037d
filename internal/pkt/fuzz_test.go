package pkt

import (
	"bytes"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, line := range lines() {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		p, err := Parse(line)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil || !again.Equal(p) {
			t.Fatalf("%q prints as %q, which reads as %v (%v)", line, p, again, err)
		}
		frame := p.Build()
		if got := Decode(frame); !bytes.Equal(got.Build(), frame) {
			t.Fatalf("%q decodes as %q", line, got)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, line := range lines() {
		p, err := Parse(line)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Build())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		p := Decode(frame)
		if !bytes.Equal(p.Build(), frame) {
			t.Fatalf("%x decodes as %q, which builds %x", frame, p, p.Build())
		}
		again, err := Parse(p.String())
		if err != nil || !bytes.Equal(again.Build(), frame) {
			t.Fatalf("%x prints as %q, which does not build it (%v)", frame, p, err)
		}
		if diff := Match(p, p, Vars{}); diff != "" {
			t.Fatalf("%q does not match itself:\n%s", p, diff)
		}
	})
}
