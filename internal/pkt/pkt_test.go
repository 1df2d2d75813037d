package pkt

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines returns an example of everything in the language; the fuzz targets start from it.
func lines() []string {
	return []string{
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 1",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 - win 0 urg 9 tos 0x2e ttl 1 ipid 7 df",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 FSRPAUEC seq 4294967295 ack 1",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S opt mss:1460,sackok,ts:1:0,nop,ws:7,o30:0081",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A ipopt 01010101 len 5",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A csum bad ipcsum bad",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A csum partial len 65000 gso 1448",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A doff 15 iplen 9 ihl 4 version 6",
		"tcp 10.1.0.1:* as P > 192.168.1.10:8080 S",
		"tcp *:* > 10.1.0.1:P SA",
		"tcp [2001:db8::1]:4000 > [2001:db8::10]:80 S tos 0xb8 flow 0x12345 ttl 255",
		"tcp [2001:db8::1]:4000 > [2001:db8::10]:80 S ext hbh,dst:16,rt:0,frag:0",
		"ip 2001:db8::1 > 2001:db8::10 proto 6 ext frag:1480+:77 len 8",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S vlan 5 from 02:00:00:00:00:09 to ff:ff:ff:ff:ff:ff",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S vlan ad:100,0.3 pad 6",
		"udp [2001:db8::1]:53 > [2001:db8::10]:53 len 64",
		"udp 1.1.1.1:53 > 10.0.0.1:53 data 00ff csum zero",
		"udp 1.1.1.1:53 > 10.0.0.1:53 len 9 udplen 3 trunc 40",
		"icmp 1.1.1.1 > 10.0.0.1 echo id 3 seq 4 len 56",
		"icmp6 2001:db8::1 > 2001:db8::10 echo-reply",
		"icmp6 2001:db8::1 > 2001:db8::10 too-big mtu 1280 / tcp [2001:db8::10]:80 > [2001:db8::1]:4000 A len 20 trunc 48",
		"icmp 192.0.2.1 > 10.0.0.1 unreach frag-needed mtu 1400 / tcp 10.0.0.1:80 > 1.1.1.1:4000 A",
		"icmp 192.0.2.1 > 10.0.0.1 type 99 code 7 data 0102",
		"ip 1.1.1.1 > 10.0.0.1 proto 47 len 20",
		"ip 1.1.1.1 > 10.0.0.1 frag 1480 mf proto 6 len 8",
		"ip 10.9.0.1 > 10.9.0.2 / tcp 1.1.1.1:1 > 2.2.2.2:2 A",
		"eth 0x88cc len 46",
		"raw 0200000000020200000000010800",
		"raw -",
	}
}

func TestParseAndString(t *testing.T) {
	t.Parallel()
	for _, line := range lines() {
		p, err := Parse(line)
		if err != nil {
			t.Errorf("parse %q: %v", line, err)
			continue
		}
		again, err := Parse(p.String())
		if err != nil || !again.Equal(p) {
			t.Errorf("%s\nprints as %s\nwhich reads as %v (%v)", line, p, again, err)
		}
	}
}

func TestStringIsCanonical(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"tcp 1.1.1.1:1 > 2.2.2.2:2 AS ttl 3 seq 0x10":       "tcp 1.1.1.1:1 > 2.2.2.2:2 SA seq 16 ttl 3",
		"tcp [2001:DB8:0::1]:1 > [2001:db8::2]:2 ext hbh:8": "tcp [2001:db8::1]:1 > [2001:db8::2]:2 ext hbh",
		"icmp 1.1.1.1 > 2.2.2.2 type 3 code 4":              "icmp 1.1.1.1 > 2.2.2.2 unreach frag-needed",
	} {
		p, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.String(); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                                                      "not a protocol",
		"tpc 1.1.1.1:1 > 2.2.2.2:2":                             `"tpc" is not a protocol`,
		"tcp 1.1.1.1 > 2.2.2.2:2":                               "want ADDRESS:PORT",
		"tcp 1.1.1.1:1 2.2.2.2:2":                               "want SOURCE > DESTINATION",
		"tcp 1.1.1.1:99999 > 2.2.2.2:2":                         "a port is 0 to 65535",
		"tcp 1.1.1.1:1 > [2001:db8::1]:2":                       "different families",
		"tcp 2001:db8::1:1 > [2001:db8::1]:2":                   "want ADDRESS:PORT",
		"tcp [1.1.1.1]:1 > 2.2.2.2:2":                           "brackets go around IPv6",
		"icmp 2001:db8::1 > 2001:db8::2":                        "does not run over",
		"tcp 1.1.1.1:1 > 2.2.2.2:2 X":                           `tcp has no field "X"`,
		"tcp 1.1.1.1:1 > 2.2.2.2:2 id 3":                        `tcp has no field "id"`,
		"tcp 1.1.1.1:1 > 2.2.2.2:2 ttl 256":                     "at most 8 bits",
		"tcp 1.1.1.1:1 > 2.2.2.2:2 ttl 1 ttl 2":                 "stated twice",
		"tcp 1.1.1.1:1 > 2.2.2.2:2 flow 1":                      "a field of IPv6",
		"tcp [::1]:1 > [::2]:2 df":                              "a field of IPv4",
		"tcp 1.1.1.1:1 > 2.2.2.2:2 len 1 data 0":                "hexadecimal",
		"udp 1.1.1.1:1 > 2.2.2.2:2 len 1 data 00":               "exclude each other",
		"udp 1.1.1.1:1 > 2.2.2.2:* as p":                        "capital letters",
		"udp 1.1.1.1:1 > 2.2.2.2:1 / udp 1.1.1.1:1 > 2.2.2.2:2": "carries no udp packet",
		"ip 1.1.1.1 > 2.2.2.2 frag 7":                           "multiple of 8",
		"ip ::1 > ::2 ext hop":                                  "want hbh",
		"eth 0x800 vlan 4096":                                   "0 to 4095",
		"sctp 1.1.1.1:1 > 2.2.2.2:2 chunks init/10.0.0.1":       "want =TAG before",
	} {
		_, err := Parse(line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one about %s", line, err, want)
		}
	}
}

// TestBuildBytes compares with bytes that were written by hand from the headers' specifications;
// the IPv4 checksum is the well-known worked example.
func TestBuildBytes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"udp 192.168.0.1:1 > 192.168.0.199:2 df len 87 csum zero": "020000000002 020000000001 0800" +
			"4500 0073 0000 4000 4011 b861 c0a80001 c0a800c7 0001 0002 005f 0000" + hex.EncodeToString(letters(87)),
		"tcp [::1]:1 > [::2]:2 S seq 5 opt mss:1460 win 1 csum 0xabcd": "020000000002 020000000001 86dd" +
			"60000000 0018 06 40 00000000000000000000000000000001 00000000000000000000000000000002" +
			"0001 0002 00000005 00000000 6002 0001 abcd 0000 020405b4",
		"eth 0x88cc data 01 vlan ad:100,5.3 from 02:00:00:00:00:09": "020000000002 020000000009 88a8 0064 8100 6005 88cc 01",
		"ip ::1 > ::2 ext hbh,frag:8+:1 proto 59": "020000000002 020000000001 86dd" +
			"60000000 0010 00 40 00000000000000000000000000000001 00000000000000000000000000000002" +
			"2c 00 0104 00000000 3b 00 0009 00000001",
	} {
		p, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(p.Build()); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s\n got %s\nwant %s", line, got, strings.ReplaceAll(want, " ", ""))
		}
	}
}

func TestChecksumOfRFC1071(t *testing.T) {
	t.Parallel()
	if got := fold(sum(0, []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7})); got != 0xddf2 {
		t.Errorf("got %#x, want 0xddf2", got)
	}
}

func TestDecodeOfBuild(t *testing.T) {
	t.Parallel()
	for _, line := range lines() {
		p, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		frame := p.Build()
		got := Decode(frame)
		if diff := cmp.Diff(frame, got.Build()); diff != "" {
			t.Errorf("%s\ndecodes as %s\nwith other bytes: %s", line, got, diff)
		}
	}
}

func TestDecodeIsDeep(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 S seq 1 opt mss:1460,sackok,ts:1:0,nop,ws:7 tos 0x2e df vlan 5 pad 6",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A csum bad",
		"tcp 1.1.1.1:4000 > 10.0.0.1:80 A csum partial len 9000",
		"udp 1.1.1.1:4000 > 10.0.0.1:80 data 0001 csum zero",
		"tcp [2001:db8::1]:4000 > [2001:db8::10]:80 S flow 0x12345 ext hbh,dst:16,rt:0,frag:0",
		"icmp6 2001:db8::1 > 2001:db8::10 too-big mtu 1280 / tcp [2001:db8::10]:80 > [2001:db8::1]:4000 A len 20",
		"ip 1.1.1.1 > 10.0.0.1 proto 6 mf frag 1480 len 8",
		"eth 0x88cc len 46",
	} {
		p, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		got := Decode(p.Build())
		if brief := got.Brief().String(); brief != p.String() {
			t.Errorf("\n got %s\nwant %s", brief, p)
		}
		if diff := Match(p, got, Vars{}); diff != "" {
			t.Errorf("%s does not match itself:\n%s", line, diff)
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	const packet = "tcp 10.1.0.1:1500 > 192.168.1.10:8080 S seq 9 len 4"
	for _, c := range []struct {
		pattern string
		want    bool
	}{
		{"tcp *:* > *:*", true},
		{"tcp 10.1.0.1:* as P > 192.168.1.10:8080 S", true},
		{"tcp *:* as P > *:* as P", false},
		{"tcp *:Q > *:*", true},
		{"tcp *:* as Q > *:*", true},
		{"tcp *:* as R > *:*", false},
		{"tcp *:* > *:Q", false},
		{"tcp 10.1.0.1:1501 > *:*", false},
		{"tcp *:* > *:* SA", false},
		{"tcp *:* > *:* seq * as N", true},
		{"tcp *:* > *:* seq * as R", false},
		{"tcp *:* > *:* seq R ack R", false},
		{"tcp *:* > *:* len 4", true},
		{"tcp *:* > *:* data 61626364", true},
		{"tcp *:* > *:* len 5", false},
		{"tcp *:* > *:* csum bad", false},
		{"udp *:* > *:*", false},
	} {
		pattern, err := Parse(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(packet)
		if err != nil {
			t.Fatal(err)
		}
		diff := Match(pattern, Decode(p.Build()), Vars{"Q": 1500, "R": 1})
		if (diff == "") != c.want {
			t.Errorf("%s: matches is %v, want %v\n%s", c.pattern, diff == "", c.want, diff)
		}
	}
}

func TestMatchVerifiesChecksums(t *testing.T) {
	t.Parallel()
	p, err := Parse("tcp 10.1.0.1:1500 > 192.168.1.10:8080 S")
	if err != nil {
		t.Fatal(err)
	}
	frame := p.Build()
	for i := 14; i < len(frame); i++ {
		wrong := bytes.Clone(frame)
		wrong[i] ^= 1
		if Match(p, Decode(wrong), Vars{}) == "" {
			t.Errorf("byte %d is wrong, but the frame matches: %x", i, wrong)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	p, err := Parse("tcp 192.168.1.10:8080 > 10.1.0.1:P SA")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Resolve(Vars{}); err == nil || !strings.Contains(err.Error(), "name P") {
		t.Errorf("got error %v, want one that names P", err)
	}
	got, err := p.Resolve(Vars{"P": 77})
	if err != nil || got.DstAddr().Port() != 77 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	in, err1 := Parse("udp 1.1.1.1:1 > 2.2.2.2:2 tos 0x4 len 9 ttl 9")
	change, err2 := Parse("udp *:* > 3.3.3.3:3 ttl 8 data 00")
	if err1 != nil || err2 != nil {
		t.Fatalf("got %v %v, want no error", err1, err2)
	}
	if got, want := in.Merge(change).String(), "udp 1.1.1.1:1 > 3.3.3.3:3 ttl 8 tos 0x4 data 00"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestDiffIsReadable(t *testing.T) {
	t.Parallel()
	want, err1 := Parse("tcp 1.1.1.1:1 > 2.2.2.2:2 S")
	other, err2 := Parse("tcp 1.1.1.1:1 > 2.2.2.3:2 S csum bad")
	if err1 != nil || err2 != nil {
		t.Fatalf("got %v %v, want no error", err1, err2)
	}
	var marked []string
	for _, line := range strings.Split(Match(want, Decode(other.Build()), nil), "\n") {
		if strings.HasPrefix(line, "!") {
			marked = append(marked, strings.Join(strings.Fields(line), " "))
		}
	}
	if diff := cmp.Diff([]string{"! dst want 2.2.2.2 got 2.2.2.3", "! csum want right got bad"}, marked); diff != "" {
		t.Errorf("the marked fields differ (-want +got):\n%s", diff)
	}
}

// TestBadSumIsOneOfTwoZeros checks that 0 and 0xffff are equal in a wrong checksum, as a
// translation may write either.
func TestBadSumIsOneOfTwoZeros(t *testing.T) {
	s := sums{right: 0xfffe, partial: 0x1234}
	for _, got := range []uint16{0, 0xffff} {
		if v, wrong := s.explain(got); !wrong || v.Text != "bad" {
			t.Errorf("checksum %#x: got %+v, want bad: the right one is 0xfffe", got, v)
		}
	}
	s.udp = true
	if v, wrong := s.explain(0); !wrong || v.Text != "zero" {
		t.Errorf("UDP checksum 0: got %+v, want zero", v)
	}
}
