package faulty

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// delayer is an interface that returns each frame after a delay. A tc program cannot delay packets,
// and not every kernel has queueing disciplines that can (fq, netem).
type delayer struct {
	name  string
	tap   *os.File
	delay atomic.Int64 // time.Duration
}

// maxDelayed is the number of frames that a delayer can hold. It drops further ones.
const maxDelayed = 4096

type delayedFrame struct {
	frame []byte
	due   time.Time
}

func newDelayer(h *netnstest.Host, name string, mtu int) (*delayer, error) {
	tap, err := h.OpenTun(name, unix.IFF_TAP)
	if err != nil {
		return nil, err
	}
	if err := setUp(h, name, mtu); err != nil {
		return nil, errors.Join(err, tap.Close())
	}
	held := &delayer{name: name, tap: tap}
	queue := make(chan delayedFrame, maxDelayed)
	go held.queueFrames(queue)
	go held.sendFrames(queue)
	return held, nil
}

// queueFrames reads frames until the interface is closed.
func (h *delayer) queueFrames(queue chan<- delayedFrame) {
	defer close(queue)
	buf := make([]byte, 65536)
	for {
		n, err := h.tap.Read(buf)
		if err != nil {
			return
		}
		f := delayedFrame{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(h.delay.Load()))}
		select {
		case queue <- f:
		default:
		}
	}
}

func (h *delayer) sendFrames(queue <-chan delayedFrame) {
	for f := range queue {
		time.Sleep(time.Until(f.due))
		_, _ = h.tap.Write(f.frame) // fails after close
	}
}

func (h *delayer) close() { _ = h.tap.Close() }
