package packet

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// ftpAttacker is the client whose control connection has arbitrary text.
const ftpAttacker = "1.1.1.1"

// FuzzFTP sends any text of a client or its endpoint over a control connection, in two segments.
// The segments must keep their lengths and headers, and only replies may change. The program must
// expect only data connections between this client and its endpoint.
func FuzzFTP(f *testing.F) {
	lane := newFuzzWorker(f, lab.Config{}, "10.0.0.1:21/tcp helper=ftp endpoints=192.168.1.10:2121", "10.0.0.1:30001/tcp endpoints=192.168.1.14:80")
	for _, text := range ftpTexts(f) {
		f.Add(text, uint8(0), false)
		f.Add(text, uint8(len(text)/2), true)
		f.Add(text, uint8(0), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, cut uint8, reply bool) {
		if len(text) == 0 || len(text) > 1400 {
			return
		}
		err := lane.do(func(l *lab.Lab) error {
			err := fuzzFTP(l, text, min(int(cut), len(text)), reply)
			return errors.Join(err, checkAllExpire(l), clearExpectations(l))
		})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}

// ftpTexts returns the texts of scripts, and some that scripts do not have.
func ftpTexts(f *testing.F) (list [][]byte) {
	for _, name := range scriptFiles(f, "testdata") {
		if !strings.Contains(name, "ftp") {
			continue
		}
		for _, line := range readScript(f, name).lines {
			frame := seedFrame(line)
			if p := pkt.Decode(frame); frame != nil && p.Proto == pkt.TCP && p.Has(pkt.Data) {
				list = append(list, []byte(p.Value(pkt.Data).Text))
			}
		}
	}
	return append(
		list, []byte("227 (192,168,1,10,117,49)\r\n"), []byte("229 "+strings.Repeat("|", 120)), []byte("EPRT |1|1.1.1.1|65536|\r\n"),
		bytes.Repeat([]byte("227 192,168,1,10,4,0\r\n"), 6), []byte("227 =192,168,1,10,255,255"), []byte("PORT 1,1,1,1,4,0,"),
	)
}

func fuzzFTP(l *lab.Lab, text []byte, cut int, reply bool) error {
	for _, client := range []string{victim, ftpAttacker} {
		if err := handshake(l, client+":4000", "10.0.0.1:21", "192.168.1.10:2121"); err != nil {
			return err
		}
	}
	announced := hex.EncodeToString([]byte("229 (|||30000|)\r\n"))
	if _, err := wantOut(l, l.Server, "tcp 192.168.1.10:2121 > %s:4000 PA seq 5001 ack 1001 data %s", victim, announced); err != nil {
		return err
	}
	return checkVictimUnchanged(l, func() error {
		at := 0
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			if err := ftpSegment(l, part, at, reply); err != nil {
				return err
			}
			at += len(part)
		}
		if err := checkExpectations(l); err != nil {
			return err
		}
		to, err := wantOut(l, l.Client, "tcp %s:4001 > 10.0.0.1:30000 S seq 1", victim)
		if err == nil && to.DstAddr().String() != "192.168.1.10:30000" {
			err = fmt.Errorf("the victim's data connection goes to %s", to.DstAddr())
		}
		return err
	})
}

// ftpSegment sends a part of the text, which begins at offset at, and checks the segment that
// leaves.
func ftpSegment(l *lab.Lab, part []byte, at int, reply bool) error {
	if len(part) == 0 {
		return nil
	}
	link, line := l.Client, fmt.Sprintf("tcp %s:4000 > 10.0.0.1:21 PA seq %d ack 5001 %s", ftpAttacker, 1001+at, hexOf(part))
	if reply {
		link, line = l.Server, fmt.Sprintf("tcp 192.168.1.10:2121 > %s:4000 PA seq %d ack 1001 %s", ftpAttacker, 5001+at, hexOf(part))
	}
	in, parsed := pkt.Parse(line)
	res, err := sendText(l, link, "%s", line)
	if err := errors.Join(parsed, err); err != nil {
		return err
	}
	if res.Verdict != "out" {
		return fmt.Errorf(`%s: got %s %s, want res.Verdict == "out"`, line, res.Verdict, res.Reason)
	}
	out, got := pkt.Decode(res.Frame), dataOf(res.Frame)
	if err := wantSameHeader(in, out, pkt.Seq, pkt.Ack, pkt.Flags); err != nil {
		return err
	}
	if bytes.Equal(got, part) || reply && len(got) == len(part) && ftpLineChanged(part, got) {
		return nil
	}
	return fmt.Errorf("%q became %q", part, got)
}

// ftpLineChanged reports whether two texts of the same length differ only within one line: a reply
// that announces a data connection. The code of the reply must not differ.
func ftpLineChanged(before, after []byte) bool {
	at := 0
	for before[at] == after[at] {
		at++
	}
	begin := bytes.LastIndexByte(before[:at], '\n') + 1
	line, rest, _ := bytes.Cut(before[begin:], []byte("\n"))
	changed := after[begin : begin+len(line)]
	switch {
	case !bytes.HasSuffix(after, rest) || at < begin+4:
		return false
	case bytes.HasPrefix(line, []byte("227 ")):
		return bytes.Contains(changed, []byte("10,0,0,1,"))
	}
	return bytes.HasPrefix(line, []byte("229 "))
}

// checkExpectations checks that all rows of expected connections are of the victim, or of the
// attacker and its endpoint, and that another client cannot use them.
func checkExpectations(l *lab.Lab) error {
	table, err := rows.Read[bpf.TcExpectationKey, bpf.TcExpectation](l.Programs().Collection.Maps.Fragments)
	if err != nil {
		return err
	}
	attacker := bpf.Addr(netip.MustParseAddr(ftpAttacker))
	var own []bpf.TcExpectationKey
	for key, row := range table {
		switch {
		case key.Client == bpf.Addr(netip.MustParseAddr(victim)):
			continue
		case key.Client != attacker:
			return fmt.Errorf("a row of another client: %+v %+v", key, row)
		case bpf.TcExpectationKind(key.Kind) != bpf.TcExpectationKindEXPECT_CONTROL:
			own = append(own, key)
		}
	}
	if len(own) > 1 {
		return fmt.Errorf("a control connection expects %d others", len(own))
	}
	for _, key := range own {
		if err := ftpOthersRefused(l, key, table[key]); err != nil {
			return err
		}
	}
	return nil
}

// ftpOthersRefused checks a row of the attacker, and that neither another client nor another
// endpoint can use it.
func ftpOthersRefused(l *lab.Lab, key bpf.TcExpectationKey, row bpf.TcExpectation) error {
	endpoint, vip := bpf.Addr(netip.MustParseAddr("192.168.1.10")), bpf.Addr(netip.MustParseAddr("10.0.0.1"))
	port := bigEndian(key.Port)
	server, other, link, line := vip, endpoint, l.Client, fmt.Sprintf("tcp 8.8.8.8:4000 > 10.0.0.1:%d S seq 1", port)
	if bpf.TcExpectationKind(key.Kind) == bpf.TcExpectationKindEXPECT_ACTIVE {
		server, other, link, line = endpoint, vip, l.Server, fmt.Sprintf("tcp 192.168.1.11:20 > %s:%d S seq 1", ftpAttacker, port)
	}
	if key.Server != server || row.Vip != other || port < 1024 || bigEndian(row.Port) < 1024 || port == 30001 && link == l.Client {
		return fmt.Errorf("expected: %+v %+v", key, row)
	}
	res, err := sendText(l, link, "%s", line)
	if err == nil && res.Verdict != "pass" {
		err = fmt.Errorf("%s: %s %s", line, res.Verdict, res.Reason)
	}
	return err
}

// bigEndian returns a port as the kernel stores it, in network byte order.
func bigEndian(stored uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, stored))
}

// clearExpectations removes all rows of expected connections.
func clearExpectations(l *lab.Lab) error {
	table := l.Programs().Collection.Maps.Fragments
	all, err := rows.Read[bpf.TcExpectationKey, bpf.TcExpectation](table)
	for key := range all {
		err = errors.Join(err, rows.Delete(table, key))
	}
	return err
}
