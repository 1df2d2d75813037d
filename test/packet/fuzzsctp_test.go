package packet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// Verification tags of the victim's association: of packets to the endpoint, and to the client.
const (
	sctpToEndpoint = 222
	sctpToClient   = 111
)

// Verification tags of the attacker's association.
const (
	sctpAttackerToEndpoint = 444
	sctpToAttacker         = 333
)

// sctpOrigin is the origin of a packet of FuzzSCTP.
type sctpOrigin uint8

const (
	sctpFromAttacker sctpOrigin = iota // from the attacker's address
	sctpForged                         // from the victim's address
	sctpOtherPath                      // from the attacker's address to another VIP, with the victim's ports
	sctpFromEndpoint                   // from the endpoint to the attacker
	sctpOtherHost                      // of the attacker's association, from another host's address
	sctpWays
)

// FuzzSCTP sends SCTP packets with any tag and chunks: from an attacker with an association of its
// own, forged from the address of the victim, to another VIP, and from the endpoint. Without the
// right tag, they must not change the victim's association. No packet of the attacker's association
// may go to another host. Packets that leave must have the right checksum, and INIT and INIT ACK
// must list no addresses except for VIPs.
func FuzzSCTP(f *testing.F) {
	lane := newFuzzWorker(f, lab.Config{}, "10.0.0.1:2020/sctp secips=10.0.0.2,10.0.0.3 endpoints=192.168.1.10:5001")
	for _, name := range scriptFiles(f, "testdata") {
		if !strings.Contains(name, "sctp") {
			continue
		}
		for _, line := range readScript(f, name).lines {
			frame := seedFrame(line)
			if p := pkt.Decode(frame); frame != nil && p.Proto == pkt.SCTP {
				f.Add(uint32(p.Num(pkt.Tag)), frame[p.Offset()+12:], uint8(len(frame)), strings.Contains(line, " mf "))
			}
		}
	}
	f.Fuzz(func(t *testing.T, tag uint32, chunks []byte, way uint8, fragment bool) {
		if len(chunks) > 1400 {
			return
		}
		err := lane.do(func(l *lab.Lab) error {
			err := fuzzSCTP(l, tag, chunks, sctpOrigin(way)%sctpWays, fragment)
			return errors.Join(err, checkAllExpire(l))
		})
		if err != nil {
			t.Fatalf("tag %d, chunks %x: %v", tag, chunks, err)
		}
	})
}

func fuzzSCTP(l *lab.Lab, tag uint32, chunks []byte, way sctpOrigin, fragment bool) error {
	for _, client := range []string{victim, "1.1.1.1"} {
		if err := associate(l, client); err != nil {
			return err
		}
	}
	if (tag == sctpToEndpoint || tag == sctpToClient) && way <= sctpOtherPath {
		return nil // only the client and its endpoint know the tags
	}
	if way == sctpOtherHost {
		tag = sctpAttackerToEndpoint
	}
	err := checkVictimUnchanged(l, func() error {
		return sctpSend(l, tag, chunks, way, fragment)
	})
	if err != nil {
		return err
	}
	to, err := wantOut(l, l.Client, "sctp %s:4000 > 10.0.0.1:2020 tag %d chunks data:4", victim, sctpToEndpoint)
	if err == nil && to.DstAddr().String() != "192.168.1.10:5001" {
		err = fmt.Errorf("the victim's packets go to %s", to.DstAddr())
	}
	if err != nil {
		return err
	}
	from, err := wantOut(l, l.Server, "sctp 192.168.1.10:5001 > %s:4000 tag %d chunks sack:12", victim, sctpToClient)
	if err == nil && from.SrcAddr().String() != "10.0.0.1:2020" {
		err = fmt.Errorf("answers to the victim come from %s", from.SrcAddr())
	}
	if err != nil || way != sctpOtherHost {
		return err
	}
	res, err := sendText(l, l.Server, "sctp 192.168.1.10:5001 > 1.1.1.1:4000 tag %d chunks data:4", sctpToAttacker)
	if err != nil || res.Verdict != "out" {
		return err
	}
	if to := pkt.Decode(res.Frame).DstAddr().String(); to != "1.1.1.1:4000" {
		return fmt.Errorf("data of the attacker's association goes to %s", to)
	}
	return nil
}

// associate opens an association from port 4000.
func associate(l *lab.Lab, client string) error {
	tag, toEndpoint := sctpToClient, sctpToEndpoint
	if client != victim {
		tag, toEndpoint = sctpToAttacker, sctpAttackerToEndpoint
	}
	_, err := wantOut(l, l.Client, "sctp %s:4000 > 10.0.0.1:2020 chunks init=%d", client, tag)
	if err == nil {
		_, err = wantOut(l, l.Server, "sctp 192.168.1.10:5001 > %s:4000 tag %d chunks init-ack=%d:40", client, tag, toEndpoint)
	}
	if err == nil {
		_, err = wantOut(l, l.Client, "sctp %s:4000 > 10.0.0.1:2020 tag %d chunks cookie-echo:40", client, toEndpoint)
	}
	if err == nil {
		_, err = wantOut(l, l.Server, "sctp 192.168.1.10:5001 > %s:4000 tag %d chunks cookie-ack", client, tag)
	}
	return err
}

// sctpSend sends a packet, and checks the packet that leaves.
func sctpSend(l *lab.Lab, tag uint32, chunks []byte, way sctpOrigin, fragment bool) error {
	link, from, to := l.Client, "1.1.1.1:4000", "10.0.0.1:2020"
	switch way {
	case sctpForged:
		from = victim + ":4000"
	case sctpOtherPath:
		to = "10.0.0.2:2020"
	case sctpOtherHost:
		from, to = "1.1.9.9:4000", "10.0.0.2:2020"
	case sctpFromEndpoint:
		link, from, to = l.Server, "192.168.1.10:5001", "1.1.1.1:4000"
	}
	more := ""
	if fragment {
		more = " mf ipid 7"
	}
	line := fmt.Sprintf("sctp %s > %s tag %d%s data %s", from, to, tag, more, sctpHex(chunks))
	in, parsed := pkt.Parse(line)
	res, err := sendText(l, link, "%s", line)
	if err := errors.Join(parsed, err); err != nil || res.Verdict != "out" {
		return err
	}
	out := pkt.Decode(res.Frame)
	if out.Has(pkt.CRC) && !fragment {
		return fmt.Errorf("%s leaves as %s", line, out)
	}
	if res.Reason != "" || l.LinkOf(res.Frame) == link {
		return nil // an answer to its sender
	}
	if err := sctpListsVIPs(chunks, res.Frame[out.Offset()+12:]); err != nil {
		return fmt.Errorf("%s leaves as %s: %w", line, out, err)
	}
	return wantSameHeader(in, out, pkt.Tag)
}

func sctpHex(chunks []byte) string {
	if len(chunks) == 0 {
		return "-"
	}
	return hex.EncodeToString(chunks)
}

// sctpListsVIPs checks the parameters of an INIT or INIT ACK that has left. The sender's parameters
// must have their values, and must list no address.
func sctpListsVIPs(sent, left []byte) error {
	const fixed, header = 20, 4
	if len(left) < fixed || left[0] != 1 && left[0] != 2 {
		return nil
	}
	for at := fixed; at+header <= len(left); {
		kind, length := int(left[at])<<8|int(left[at+1]), int(left[at+2])<<8|int(left[at+3])
		if length < header || length > len(left)-at {
			return nil // its receiver reads no further
		}
		own := at+header <= len(sent)
		if own && (kind == 5 || kind == 6) {
			return fmt.Errorf("an address is listed at %d", at)
		}
		const extensions = 0x8008 // ASCONF disappears from these
		if own && kind != extensions && !slices.Equal(left[at+2:min(at+length, len(sent))], sent[at+2:min(at+length, len(sent))]) {
			return fmt.Errorf("the parameter at %d has changed", at)
		}
		at += (length + 3) &^ 3
	}
	return nil
}
