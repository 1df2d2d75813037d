package packet

import (
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// TestGuessedTags checks that an attacker cannot find an association by guessing verification tags.
// After 100 wrong tags within a second, a packet with the right tag from an unproven address gets
// no answer, and its ABORT is dropped. Proven addresses and the first path are not affected.
func TestGuessedTags(t *testing.T) {
	t.Parallel()
	for name, guess := range map[string]func(l *lab.Lab, tag int) error{
		"without association": wantRefused,
		"at the first path": func(l *lab.Lab, tag int) error {
			_, err := wantOut(l, l.Client, "sctp %s:4000 > 10.0.0.1:2020 tag %d chunks data:4", victim, tag)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withVictim(t, func(l *lab.Lab) error { return guessTags(l, guess) })
		})
	}
}

// TestGuessedTagsEnd checks that the program counts wrong tags per second. A second without wrong
// tags later, unproven addresses get HEARTBEATs again.
func TestGuessedTagsEnd(t *testing.T) {
	t.Parallel()
	withVictim(t, func(l *lab.Lab) error {
		err := guessTags(l, wantRefused)
		for deadline := time.Now().Add(10 * time.Second); err == nil; time.Sleep(50 * time.Millisecond) { // waits for the clock
			var res lab.Result
			res, err = sendText(l, l.Client, "sctp 1.1.9.9:4000 > 10.0.0.2:2020 tag %d chunks heartbeat:12", sctpToEndpoint)
			if err == nil && res.Verdict == "out" {
				break
			}
			if err == nil && time.Now().After(deadline) {
				err = errors.New("an unproven address gets no HEARTBEAT")
			}
		}
		if err == nil {
			err = wantRefused(l, 999)
		}
		if err != nil {
			return err
		}
		return proveAddress(l, "9.9.9.7")
	})
}

// TestTagsOfOthers checks that tags of packets to a service with one VIP do not count as guesses:
// the service has only one path, so these packets find no association.
func TestTagsOfOthers(t *testing.T) {
	t.Parallel()
	withVictim(t, func(l *lab.Lab) error {
		for tag := range 100 {
			res, err := sendText(l, l.Client, "sctp 1.1.9.9:4000 > 10.0.0.3:2020 tag %d chunks data:4", 1000+tag)
			if err == nil && res.Reason != "no-connection" {
				err = fmt.Errorf("tag %d: %s %s, want no-connection", tag, res.Verdict, res.Reason)
			}
			if err != nil {
				return err
			}
		}
		return proveAddress(l, "9.9.9.7")
	})
}

// TestUnknownTag checks that packets do not count as guesses if the association's tag is unknown.
func TestUnknownTag(t *testing.T) {
	t.Parallel()
	withVictim(t, func(l *lab.Lab) error {
		const client, server = "sctp 1.1.5.5:4005 > 10.0.0.1:2020 ", "sctp 192.168.1.10:5001 > 1.1.5.5:4005 "
		for _, one := range []struct {
			link *lab.Link
			line string
		}{
			{l.Client, client + "chunks init=501"},
			{l.Server, server + "tag 501 chunks init-ack=502:40"},
			{l.Client, client + "tag 503 chunks cookie-echo:40"},
			{l.Server, server + "tag 501 chunks cookie-ack"},
		} {
			if _, err := wantOut(l, one.link, "%s", one.line); err != nil {
				return err
			}
		}
		for range 100 {
			if _, err := wantOut(l, l.Client, client+"tag 503 chunks data:4"); err != nil {
				return err
			}
		}
		return proveAddress(l, "9.9.9.8")
	})
}

// TestProvenAddresses checks that an association has at most eight proven addresses: a client with
// many addresses cannot evict paths of other clients.
func TestProvenAddresses(t *testing.T) {
	t.Parallel()
	withVictim(t, func(l *lab.Lab) error {
		const addresses, most = 12, 8
		for i := range addresses {
			if err := proveAddress(l, fmt.Sprintf("9.9.8.%d", i+1)); err != nil {
				return err
			}
		}
		proven := 0
		for i := range addresses {
			res, err := sendText(l, l.Client, "sctp 9.9.8.%d:4000 > 10.0.0.2:2020 tag %d chunks data:4", i+1, sctpToEndpoint)
			if err != nil {
				return err
			}
			if res.Reason == "" {
				proven++
			}
		}
		if proven != most {
			return fmt.Errorf("%d of %d addresses are proven, want %d", proven, addresses, most)
		}
		return nil
	})
}

// withVictim calls f with a service of two VIPs, a service of one VIP, and an association of the
// victim with the first service.
func withVictim(t *testing.T, f func(*lab.Lab) error) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- func() error {
			l, err := newVictim()
			if err != nil {
				return err
			}
			defer l.Close()
			return f(l)
		}()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func newVictim() (*lab.Lab, error) {
	l, err := lab.New(lab.Config{})
	if err != nil {
		return nil, err
	}
	for _, text := range []string{
		"10.0.0.1:2020/sctp secips=10.0.0.2 endpoints=192.168.1.10:5001", "10.0.0.3:2020/sctp endpoints=192.168.1.11:5001",
	} {
		s, parseErr := lb.ParseService(text)
		err = errors.Join(err, parseErr, l.Apply(s))
	}
	if err == nil {
		err = l.KeepNextHops() // wrong tags are counted per CPU
	}
	if err == nil {
		err = associate(l, victim)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func guessTags(l *lab.Lab, guess func(l *lab.Lab, tag int) error) error {
	if err := proveAddress(l, "9.9.9.8"); err != nil {
		return err
	}
	for {
		start := time.Now()
		for tag := range 100 {
			if err := guess(l, 1000+tag); err != nil {
				return err
			}
		}
		err := wantSilence(l)
		if err == nil || time.Since(start) < time.Second {
			return err
		}
	}
}

// wantRefused sends a packet with a wrong tag.
func wantRefused(l *lab.Lab, tag int) error {
	res, err := sendText(l, l.Client, "sctp 1.1.9.9:4000 > 10.0.0.2:2020 tag %d chunks data:4", tag)
	if err == nil && res.Reason != "no-connection" {
		err = fmt.Errorf("tag %d: %s %s, want no-connection", tag, res.Verdict, res.Reason)
	}
	return err
}

// proveAddress answers the HEARTBEAT to another address of the victim.
func proveAddress(l *lab.Lab, address string) error {
	res, err := sendText(l, l.Client, "sctp %s:4000 > 10.0.0.2:2020 tag %d chunks heartbeat:12", address, sctpToEndpoint)
	if err == nil && res.Verdict != "out" {
		err = fmt.Errorf("an unproven address gets no HEARTBEAT: %s %s", res.Verdict, res.Reason)
	}
	if err != nil {
		return err
	}
	const sctpHeader, heartbeatAck = 12, 5
	chunk := res.Frame[pkt.Decode(res.Frame).Offset()+sctpHeader:]
	chunk[0] = heartbeatAck
	res, err = sendText(l, l.Client, "sctp %s:4000 > 10.0.0.2:2020 tag %d data %s",
		address, sctpToEndpoint, hex.EncodeToString(chunk))
	if err == nil && res.Verdict != "drop" {
		err = fmt.Errorf("the answer to the HEARTBEAT: %s %s", res.Verdict, res.Reason)
	}
	return err
}

// wantSilence checks that packets with the right tag from an unproven address get no answer.
func wantSilence(l *lab.Lab) error {
	for _, chunk := range []string{"data:4", "heartbeat:12", "abort"} {
		res, err := sendText(l, l.Client, "sctp 1.1.9.9:4000 > 10.0.0.2:2020 tag %d chunks %s", sctpToEndpoint, chunk)
		if err == nil && (res.Verdict != "drop" || res.Reason != "unproven-address") {
			err = fmt.Errorf("%s of an unproven address: %s %s, want it dropped", chunk, res.Verdict, res.Reason)
		}
		if err != nil {
			return err
		}
	}
	for _, from := range []string{victim, "9.9.9.8"} {
		_, err := wantOut(l, l.Client, "sctp %s:4000 > 10.0.0.2:2020 tag %d chunks data:4", from, sctpToEndpoint)
		if err != nil {
			return err
		}
	}
	return nil
}
