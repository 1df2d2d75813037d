package lb

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

// roundTrip checks what holds for every parser: accepted text is written in a form that reads back
// the same, and refused text gives a short, printable sentence.
func roundTrip[T any](t *testing.T, in string, parse func(string) (T, error), write func(T) string, same func(a, b T) bool) {
	t.Helper()
	v, err := parse(in)
	if err != nil {
		var field *FieldError
		if !errors.As(err, &field) {
			t.Fatalf("%q: %v is no FieldError", in, err)
		}
		msg := err.Error()
		if len(msg) > 512+4*len(field.Allowed) || strings.ContainsFunc(msg, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q: the error is long or does not print: %q", in, msg)
		}
		return
	}
	again, err := parse(write(v))
	if err != nil || !same(v, again) {
		t.Fatalf("%q: %q came back as %q, %v", in, write(v), write(again), err)
	}
}

func equal[T comparable](a, b T) bool { return a == b }

func FuzzParseService(f *testing.F) {
	for _, s := range []string{
		"10.0.0.1:80/tcp mode=default select=rr endpoints=192.168.1.10:8080,192.168.1.11:8080:5 idle=300s name=x",
		`[2001:db8::1]:53/udp endpoints=[2001:db8::2]:53 weights=5 name="a \"b" managed=true idle=1.5s`,
		"10.0.0.1:0/icmp mode=fullnat select=n3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		roundTrip(t, in, ParseService, Service.String, Service.Equal)
		if s, err := ParseService(in); err == nil {
			_ = s.Validate()
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"10.0.0.1:80/tcp", "[2001:db8::1]:80/udp", "[fe80::1%eth0]:1/6"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) { roundTrip(t, in, ParseKey, Key.String, equal) })
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"1.2.3.4:80", "1.2.3.4:80:5", "[2001:db8::1]:80:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) { roundTrip(t, in, ParseEndpoint, Endpoint.String, equal) })
}

func FuzzParseEndpointFlag(f *testing.F) {
	for _, s := range []string{"1.2.3.4:1", "1.2.3.4:80:5", "[2001:db8::1]:80:0", "2001:db8::1:1", ":::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if e, err := ParseEndpointFlag(in); err == nil && e.Port == 0 {
			e.Port = 1
			roundTrip(t, e.String(), ParseEndpoint, Endpoint.String, equal)
			return
		}
		roundTrip(t, in, ParseEndpointFlag, func(e Endpoint) string {
			if e.Weight == 1 {
				return e.String() + ":1"
			}
			return e.String()
		}, equal)
	})
}

func FuzzParsePortPair(f *testing.F) {
	for _, s := range []string{"2020:5001", "80-90:80", "0:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		roundTrip(t, in, ParsePortPair, PortPair.String, equal)
		_, _ = ParsePortPairs(in)
	})
}

func FuzzParseWords(f *testing.F) {
	for _, s := range []string{"tcp", "17", "dsr", "3", "priority", "lc", "-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		roundTrip(t, in, ParseProtocol, Protocol.String, equal)
		roundTrip(t, in, ParseMode, Mode.String, equal)
		roundTrip(t, in, ParseAlgorithm, Algorithm.String, equal)
	})
}
