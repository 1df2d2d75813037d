package packet

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// FuzzProgram runs the program on arbitrary frames. Its seeds are the packets of all scripts.
func FuzzProgram(f *testing.F) {
	names := scriptFiles(f, "testdata")
	for _, name := range names {
		for _, line := range readScript(f, name).lines {
			if frame := seedFrame(line); frame != nil {
				f.Add(frame, strings.Contains(line, " server "))
			}
		}
	}
	lane := newFuzzWorker(
		f, lab.Config{XDP: true},
		"10.0.0.1:80/tcp endpoints=192.168.1.10:8080", "10.0.0.1:53/udp endpoints=192.168.1.10:5353", "10.0.0.1:2020/sctp endpoints=192.168.1.10:5001",
		"[2001:db8::1]:80/tcp endpoints=[2001:db8:2::10]:8080", "[2001:db8::1]:53/udp endpoints=[2001:db8:2::10]:5353", "[2001:db8::1]:2020/sctp endpoints=[2001:db8:2::10]:5001",
		quicPlain, quicEncrypted,
	)
	f.Fuzz(func(t *testing.T, frame []byte, server bool) {
		if err := lane.do(func(l *lab.Lab) error { return fuzzOne(l, frame, server) }); err != nil {
			t.Fatalf("%x\n%s\n%v", frame, pkt.Decode(frame), err)
		}
	})
}

// seedFrame returns the packet of a script's line, or nil if the line has none or the program
// cannot run on it.
func seedFrame(line string) []byte {
	verb, _ := splitVerb(line)
	if verb != "in" && verb != "pass" && verb != "drop" {
		return nil
	}
	p, err := pkt.Parse(parseStep(script{lines: []string{line}}, 0).packet)
	if err != nil {
		return nil
	}
	if !p.Has(pkt.To) {
		to := uint64(0x020000000101) // the client's interface
		if strings.Contains(line, " server ") {
			to = 0x020000000201
		}
		p.SetNum(pkt.To, to)
	}
	if frame := p.Build(); len(frame) < 3000 {
		return frame
	}
	return nil
}

// fuzzOne runs the program on a frame. A packet that passes must be unchanged. A packet that leaves
// must have the same length, and checksums that are as correct or wrong as before. If a packet
// leaves although a drop is counted, it is an answer to the sender and must have correct checksums.
func fuzzOne(l *lab.Lab, frame []byte, server bool) error {
	link := l.Client
	if server {
		link = l.Server
	}
	res, err := l.Send(link, frame)
	if errors.Is(err, syscall.EINVAL) {
		return nil // too short or too long for BPF_PROG_TEST_RUN
	}
	if err != nil {
		return err
	}
	switch {
	case res.Verdict == "pass" && !bytes.Equal(res.Frame, frame):
		return errors.New("passed, but changed:\n" + pkt.Diff(pkt.Decode(frame), pkt.Decode(res.Frame), nil))
	case res.Verdict != "out":
		return nil
	}
	if res.Reason == "" {
		if res.Reason, err = l.Counted(); err != nil {
			return err
		}
	}
	switch {
	case res.Reason != "":
		return checkAnswerChecksums(res.Frame)
	}
	in, out := pkt.Decode(frame), pkt.Decode(res.Frame)
	untagged := in.Clone().Unset(pkt.VLAN).Build()
	if len(res.Frame) != len(untagged) {
		return fmt.Errorf("%d bytes came in, %d left", len(untagged), len(res.Frame))
	}
	for _, f := range []pkt.Field{pkt.Sum, pkt.CRC, pkt.IPSum} {
		if !in.Has(f) && out.Has(f) {
			return errors.New("a checksum was right and is wrong:\n" + pkt.Diff(in, out, nil))
		}
	}
	return nil
}

// checkAnswerChecksums checks the checksums of an answer. Decode sets these fields only for wrong
// checksums.
func checkAnswerChecksums(frame []byte) error {
	out := pkt.Decode(frame)
	for _, f := range []pkt.Field{pkt.Sum, pkt.CRC, pkt.IPSum} {
		if out.Has(f) {
			return fmt.Errorf("the answer has a wrong checksum: %s", out)
		}
	}
	return nil
}
