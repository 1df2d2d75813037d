package packet

import (
	"errors"
	"fmt"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// FuzzTFTP sends any request of a client, and any answer of the endpoint, from any port to any port
// of this or another client. Only answers to ports with an open request may be translated. Their
// source must be the VIP.
func FuzzTFTP(f *testing.F) {
	lane := newFuzzWorker(f, lab.Config{}, "10.0.0.1:69/udp helper=tftp endpoints=192.168.1.10:1069")
	f.Add([]byte("\x00\x01file\x00octet\x00"), []byte("\x00\x03\x00\x01data"), uint16(50001), uint16(4001), false)
	f.Add([]byte("\x00\x02file\x00octet\x00blksize\x001428\x00"), []byte("\x00\x06blksize\x001428\x00"), uint16(1069), uint16(4001), false)
	f.Add([]byte("\x00\x01"), []byte("\x00\x05\x00\x00\x00"), uint16(50000), uint16(4000), true)
	f.Add([]byte("\x00\x01"), []byte("\x00\x03\x00\x02"), uint16(69), uint16(69), true)
	f.Fuzz(func(t *testing.T, request, answer []byte, from, to uint16, another bool) {
		if len(request) > 1400 || len(answer) > 1400 || from == 0 || to == 0 {
			return
		}
		err := lane.do(func(l *lab.Lab) error {
			err := fuzzTFTP(l, request, answer, from, to, another)
			return errors.Join(err, checkAllExpire(l))
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func fuzzTFTP(l *lab.Lab, request, answer []byte, from, to uint16, another bool) error {
	_, first := wantOut(l, l.Client, "udp %s:4000 > 10.0.0.1:69 data 0001", victim)
	_, second := wantOut(l, l.Server, "udp 192.168.1.10:50000 > %s:4000 data 00030001", victim)
	if err := errors.Join(first, second); err != nil {
		return err
	}
	client := "1.1.1.1"
	return checkVictimUnchanged(l, func() error {
		res, err := sendText(l, l.Client, "udp %s:4001 > 10.0.0.1:69 %s", client, hexOf(request))
		if err == nil {
			err = wantSameData(res.Frame, request)
		}
		if err != nil {
			return err
		}
		port := uint16(4001)
		if another {
			client, port = victim, 4000
		}
		line := fmt.Sprintf("udp 192.168.1.10:%d > %s:%d %s", from, client, to, hexOf(answer))
		res, err = sendText(l, l.Server, "%s", line)
		if err != nil {
			return err
		}
		want := "pass"
		if to == port {
			want = "out"
		}
		if res.Verdict != want {
			return fmt.Errorf("%s: %s %s, want %s", line, res.Verdict, res.Reason, want)
		}
		if want == "pass" {
			return nil
		}
		shown := from
		if from == 1069 {
			shown = 69
		}
		out := pkt.Decode(res.Frame)
		if got, want := out.SrcAddr().String(), fmt.Sprintf("10.0.0.1:%d", shown); got != want || out.DstAddr().String() != fmt.Sprintf("%s:%d", client, to) {
			return fmt.Errorf("%s leaves as %s", line, out)
		}
		return errors.Join(wantSameData(res.Frame, answer), wantSameHeader(out, out))
	})
}
