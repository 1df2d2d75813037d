package packet

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// Services of QUIC, with server IDs in plaintext and encrypted.
const (
	quicPlain     = "10.0.0.1:443/udp select=quic endpoints=192.168.1.10:8443:1#c4605e,192.168.1.11:8443:0#c4605f"
	quicEncrypted = "[2001:db8::1]:443/udp select=quic quic=0:4:8f95f09245765f80256934e50c66207f endpoints=[2001:db8:2::10]:8443:1#ed793a"
	quicVictimID  = "4007c4605f4504cc4f0000000000000000"
)

// FuzzQUIC sends datagrams with any content to services that route by connection ID, also with the
// ID of another client's connection. They must reach an endpoint unchanged, each time the same one.
func FuzzQUIC(f *testing.F) {
	lane := newFuzzWorker(f, lab.Config{}, quicPlain, quicEncrypted)
	for _, name := range scriptFiles(f, "testdata") {
		if !strings.Contains(name, "quic") {
			continue
		}
		for _, line := range readScript(f, name).lines {
			if frame := seedFrame(line); frame != nil {
				p := pkt.Decode(frame)
				f.Add([]byte(p.Value(pkt.Data).Text), p.Is6())
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, ipv6 bool) {
		if len(data) == 0 || len(data) > 1400 {
			return
		}
		if err := lane.do(func(l *lab.Lab) error { return fuzzQUIC(l, data, ipv6) }); err != nil {
			t.Fatalf("%x: %v", data, err)
		}
	})
}

func fuzzQUIC(l *lab.Lab, data []byte, ipv6 bool) error {
	to, err := wantOut(l, l.Client, "udp %s:4000 > 10.0.0.1:443 data %s", victim, quicVictimID)
	if err == nil && to.DstAddr().String() != "192.168.1.11:8443" {
		err = fmt.Errorf("the victim's packets go to %s", to.DstAddr())
	}
	if err != nil {
		return err
	}
	from, vip := "1.1.1.1", "10.0.0.1"
	if ipv6 {
		from, vip = "[2001:db8:100::1]", "[2001:db8::1]"
	}
	err = checkVictimUnchanged(l, func() error {
		var first string
		for range 2 {
			line := fmt.Sprintf("udp %s:4000 > %s:443 data %s", from, vip, hex.EncodeToString(data))
			res, err := sendText(l, l.Client, "%s", line)
			if err != nil {
				return err
			}
			if res.Verdict != "out" {
				return fmt.Errorf(`%s: got %s %s, want res.Verdict == "out"`, line, res.Verdict, res.Reason)
			}
			out := pkt.Decode(res.Frame)
			in, err := pkt.Parse(line)
			if err := errors.Join(err, wantSameData(res.Frame, data)); err != nil {
				return err
			}
			if err := wantSameHeader(in, out, pkt.SrcPort); err != nil {
				return err
			}
			if first == "" {
				first = out.DstAddr().String()
			}
			if at := out.DstAddr().String(); at != first || !strings.HasSuffix(at, ":8443") {
				return fmt.Errorf("the first datagram goes to %s, the next one to %s", first, at)
			}
			if named := quicEndpointOf(data, ipv6); named != "" && named != first {
				return fmt.Errorf("a datagram goes to %s, but its ID is of %s", first, named)
			}
		}
		return nil
	})
	return errors.Join(err, checkAllExpire(l))
}

// quicEndpointOf returns the endpoint of the server ID in a short header with an ID in plaintext.
// It returns "" for another kind of packet, or an unknown server.
func quicEndpointOf(data []byte, ipv6 bool) string {
	if ipv6 || len(data) < 9 || data[0]&0xc0 != 0x40 || data[1]>>5 != 0 {
		return ""
	}
	switch {
	case bytes.Equal(data[2:5], []byte{0xc4, 0x60, 0x5e}):
		return "192.168.1.10:8443"
	case bytes.Equal(data[2:5], []byte{0xc4, 0x60, 0x5f}):
		return "192.168.1.11:8443"
	}
	return ""
}
