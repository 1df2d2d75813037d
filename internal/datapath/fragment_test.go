package datapath_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"loxilb/internal/lb"
	"loxilb/internal/pkt"
	"loxilb/test/packet/lab"
)

// inLab runs a test in a lab of its own.
func inLab(t *testing.T, service string, f func(*lab.Lab) error) {
	t.Helper()
	inLabWith(t, lab.Config{}, service, f)
}

func inLabWith(t *testing.T, cfg lab.Config, service string, f func(*lab.Lab) error) {
	t.Helper()
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the namespace ends with the thread
		errs <- func() (err error) {
			l, err := lab.New(cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, l.Close()) }()
			s, err := lb.ParseService(service)
			if err == nil {
				err = l.Apply(s)
			}
			if err != nil {
				return err
			}
			return f(l)
		}()
	}()
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
}

func sendLine(l *lab.Lab, line string) (lab.Result, error) {
	p, err := pkt.Parse(line)
	if err != nil {
		return lab.Result{}, err
	}
	return l.Send(l.Client, l.Arriving(l.Client, p).Build())
}

// TestFragmentsFull has as many datagrams under way as are remembered.
//
// V122 8,192 datagrams are under way: the next is refused until they are old
func TestFragmentsFull(t *testing.T) {
	t.Parallel()
	inLab(t, "10.0.0.1:53/udp endpoints=192.168.1.10:5353", func(l *lab.Lab) error {
		const most = 8192
		first := func(id int) error {
			res, err := sendLine(l, fmt.Sprintf("udp 1.1.1.1:4000 > 10.0.0.1:53 ipid %d mf len 1472 udplen 3000", id))
			if err == nil && res.Verdict != "out" {
				err = fmt.Errorf("datagram %d: %s %s", id, res.Verdict, res.Reason)
			}
			return err
		}
		for id := range most {
			if err := first(id); err != nil {
				return err
			}
		}
		if err := first(most); err == nil || err.Error() != "datagram 8192: drop fragments-full" {
			return fmt.Errorf("one too many: %s", fmt.Sprint(err))
		}
		if err := l.Advance(31 * time.Second); err != nil {
			return err
		}
		time.Sleep(1100 * time.Millisecond) // a full table is searched for old records once a second
		return first(most)
	})
}
