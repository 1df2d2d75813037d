package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/dptest"
	"loxilb/test/packet/lab"
)

// TestChallengeNumbers checks that the number of a challenge is the hash of addresses, ports and
// period, and is valid in its own period and the next one.
func TestChallengeNumbers(t *testing.T) {
	t.Parallel()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		failed <- challengeNumbers(t)
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

func challengeNumbers(t *testing.T) error {
	l, err := lab.New(lab.Config{})
	if err != nil {
		return err
	}
	defer l.Close()
	keys, err := l.Programs().Secrets()
	if err != nil {
		return err
	}
	for _, text := range []string{
		"10.0.0.1:80/tcp syn-protect=always endpoints=192.168.1.10:80", "[2001:db8::1]:80/tcp syn-protect=always endpoints=[2001:db8:2::10]:80",
	} {
		s, err := lb.ParseService(text)
		if err == nil {
			err = l.Apply(s)
		}
		if err != nil {
			return err
		}
	}
	for _, c := range []struct{ client, vip string }{{"1.1.1.1:4000", "10.0.0.1:80"}, {"[2001:db8:100::1]:4000", "[2001:db8::1]:80"}} {
		if err := periods(t, l, keys.Challenge, netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.vip)); err != nil {
			return fmt.Errorf("%s > %s: %w", c.client, c.vip, err)
		}
	}
	return nil
}

// periods answers the challenge of a client with numbers of several periods.
func periods(t *testing.T, l *lab.Lab, key bpf.TcSiphashKey, client, vip netip.AddrPort) error {
	send := func(flags, seq uint64) (lab.Result, error) {
		p := pkt.New(pkt.TCP).SetSrc(client).SetDst(vip).SetNum(pkt.Flags, flags).SetNum(pkt.Seq, seq)
		return l.Send(l.Client, l.Arriving(l.Client, p).Build())
	}
	const periodTicks = 1 << 14 // clock ticks, 1 << CHALLENGE_PERIOD_SHIFT of bpf/protect/challenge.h
	for ago, want := range []string{"challenge-answered", "challenge-answered", "no-connection"} {
		before := dptest.Jiffies(t) / periodTicks
		number := challengeNumber(key, client, vip, before-uint32(ago))
		res, err := send(pkt.FlagRST, uint64(number))
		if err != nil {
			return err
		}
		if dptest.Jiffies(t)/periodTicks != before { // a new period has begun: retry
			return periods(t, l, key, client, vip)
		}
		if res.Verdict != "drop" || res.Reason != want {
			return fmt.Errorf("a RST with the number of %d periods ago: %s %s, want %s", ago, res.Verdict, res.Reason, want)
		}
		if err := l.Programs().ForgetKnownClients(); err != nil {
			return err
		}
	}
	// The challenge must not acknowledge a number that the client has sent: that would be a correct
	// reply to its SYN.
	now := dptest.Jiffies(t) / periodTicks
	number := challengeNumber(key, client, vip, now)
	for _, c := range []struct{ seq, want uint32 }{{1000, number}, {number - 1, number ^ 1<<31}, {number, number ^ 1<<31}} {
		res, err := send(pkt.FlagSYN, uint64(c.seq))
		if err != nil {
			return err
		}
		if got := uint32(pkt.Decode(res.Frame).Num(pkt.Ack)); got != c.want && dptest.Jiffies(t)/periodTicks == now {
			return fmt.Errorf("the challenge of SYN %d acknowledges %d, want %d", c.seq, got, c.want)
		}
	}
	res, err := send(pkt.FlagRST, uint64(number^1<<31))
	if err == nil && res.Reason != "challenge-answered" {
		err = fmt.Errorf("a RST with a changed number: %s %s", res.Verdict, res.Reason)
	}
	return err
}

// challengeNumber returns the number of a period.
func challengeNumber(key bpf.TcSiphashKey, client, vip netip.AddrPort, period uint32) uint32 {
	message := append(client.Addr().AsSlice(), vip.Addr().AsSlice()...)
	message = binary.BigEndian.AppendUint16(message, client.Port())
	message = binary.BigEndian.AppendUint16(message, vip.Port())
	message = binary.LittleEndian.AppendUint32(message, period)
	return uint32(siphash(1, 3, key.First, key.Second, message))
}
