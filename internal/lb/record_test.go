package lb

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRecordKeepsItsBytes checks that records of builds before the table of fields stay readable,
// and are written in the same form.
func TestRecordKeepsItsBytes(t *testing.T) {
	t.Parallel()
	for _, want := range []string{
		`{"service":"10.0.0.1:80/tcp","mode":"default","select":"rr","endpoints":["192.168.1.10:8080"]}`,
		`{"service":"10.0.0.1:80/tcp","name":"a \u003c b","mode":"fullnat","select":"persist","endpoints":["192.168.1.10:8080:5","192.168.1.11:80"],` +
			`"refuse":"drop","mss":1200,"idle":300,"sources":["10.0.0.0/8"],"snat":["10.1.0.2"],"secondary":["10.0.0.2","10.0.0.3"],` +
			`"egress":true,"persistTimeout":60,"persistPrefix":24,"managed":true}`,
		`{"service":"[2001:db8::1]:80/udp/mark=7","mode":"dsr","select":"hash","endpoints":["10.0.0.1:80"],"tunnel":"gue"}`,
	} {
		s, err := NewSchema().UnmarshalRecord(2, []byte(want))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		format, got, err := NewSchema().MarshalRecord(s)
		if err != nil || format != 2 {
			t.Errorf("%s: format %d, %v", want, format, err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("the result differs (-want +got):\n%s", diff)
		}
	}
	none := Service{IdleTimeout: time.Second}
	if _, got, err := NewSchema().MarshalRecord(none); err != nil || !strings.Contains(string(got), `"endpoints":[],"idle":1}`) {
		t.Errorf("got %s, %v, want no error, `\"endpoints\":[],\"idle\":1}` in string(got)", got, err)
	}
}

// TestRecordOfALaterBuild checks that records of a later build are refused, and that the owner in
// records of an older one is accepted.
func TestRecordOfALaterBuild(t *testing.T) {
	t.Parallel()
	if _, err := NewSchema().UnmarshalRecord(2, []byte(`{"service":"10.0.0.1:80/tcp","owner":"rest","mode":"default","select":"rr","endpoints":["1.1.1.1:1"]}`)); err != nil {
		t.Error(err)
	}
	const good = `{"service":"10.0.0.1:80/tcp","mode":"default","select":"rr","endpoints":["192.168.1.10:8080"]}`
	for _, tc := range []struct {
		format int
		data   string
		want   string
	}{
		{format: NewSchema().RecordFormat() + 1, data: good, want: "of a service is newer than"},
		{format: 2, data: strings.Replace(good, `"mode"`, `"probe":"tcp","drain":5,"mode"`, 1), want: `unknown member "drain" or "probe"`},
		{format: 2, data: strings.Replace(good, `"rr"`, `"maglev"`, 1), want: `select "maglev" is not known`},
		{format: 2, data: strings.Replace(good, `"default"`, `"fullproxy"`, 1), want: "not part of this build"},
		{format: 2, data: strings.Replace(good, `"default"`, `7`, 1), want: "mode is of the wrong type"},
		{format: 2, data: strings.Replace(good, `tcp`, `quic`, 1), want: `protocol "quic" is not known`},
		{format: 2, data: strings.Replace(good, `["192.168.1.10:8080"]`, `[1]`, 1), want: "endpoints is of the wrong type"},
		{format: 2, data: strings.Replace(good, `"mode"`, `"mss":1.5,"mode"`, 1), want: "mss is of the wrong type"},
		{format: 2, data: strings.Replace(good, `"mode"`, `"mss":1e300,"mode"`, 1), want: "mss is of the wrong type"},
		{format: 2, data: strings.Replace(good, `"mode"`, `"mss":65536,"mode"`, 1), want: "out of range"},
		{format: 2, data: strings.Replace(good, `"mode"`, `"egress":"true","mode"`, 1), want: "egress is of the wrong type"},
		{format: 2, data: `{}`, want: "service is not a string"},
		{format: 2, data: good[:40], want: "unexpected end"},
		{format: 2, data: `[]`, want: "cannot unmarshal"},
	} {
		_, err := NewSchema().UnmarshalRecord(tc.format, []byte(tc.data))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("format %d %s: %v, want %s", tc.format, tc.data, err, tc.want)
		}
	}
}

// FuzzRecord checks that any record is refused, or is a service that is written in a form that
// reads back.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"service":"10.0.0.1:80/tcp","mode":"default","select":"rr","endpoints":["192.168.1.10:8080"],"idle":300,"egress":true}`))
	f.Add([]byte(`{"service":"10.0.0.1:80/tcp","owner":1,"mode":"","select":"3","endpoints":null,"idle":-1,"persistTimeout":1e18,"sources":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := NewSchema().UnmarshalRecord(NewSchema().RecordFormat(), data)
		if err != nil {
			return
		}
		format, out, err := NewSchema().MarshalRecord(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := NewSchema().UnmarshalRecord(format, out); err != nil || !again.Equal(s) {
			t.Fatalf("%s came back from %s as %s, %v", s, out, again, err)
		}
	})
}

// TestModesFormat checks that earlier builds refuse services in modes that they lack by the format
// of their records, and can read all others.
func TestModesFormat(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]int{
		"10.0.0.1:80/tcp mode=auto endpoints=10.1.0.1:80":   modesFormat,
		"10.0.0.1:80/tcp mode=onearm endpoints=10.1.0.1:80": firstRecordFormat,
	} {
		s, err := ParseService(line)
		if err != nil {
			t.Fatal(err)
		}
		format, data, err := NewSchema().MarshalRecord(s)
		if err != nil || format != want {
			t.Errorf("%s: format %d, want %d (%v)", line, format, want, err)
		}
		if got, err := NewSchema().UnmarshalRecord(format, data); err != nil || !got.Equal(s) {
			t.Errorf("%s: read as %s: %v", line, got, err)
		}
	}
}
