package faulty

import (
	"errors"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/netnstest"
)

// holder is an interface that gives each frame back some time after it got it: no tc program can
// keep a packet, and the queues that would (fq, netem) are not in every kernel.
type holder struct {
	name string
	tap  *os.File
	by   atomic.Int64 // time.Duration
}

// maxHeld is how many frames are held at a time; more are lost.
const maxHeld = 4096

type heldFrame struct {
	frame []byte
	due   time.Time
}

func newHolder(h *netnstest.Host, name string, mtu int) (*holder, error) {
	tap, err := h.OpenTun(name, unix.IFF_TAP)
	if err != nil {
		return nil, err
	}
	if err := raise(h, name, mtu); err != nil {
		return nil, errors.Join(err, tap.Close())
	}
	held := &holder{name: name, tap: tap}
	queue := make(chan heldFrame, maxHeld)
	go held.queueFrames(queue)
	go held.giveBack(queue)
	return held, nil
}

// queueFrames reads frames until the interface is closed.
func (h *holder) queueFrames(queue chan<- heldFrame) {
	defer close(queue)
	buf := make([]byte, 65536)
	for {
		n, err := h.tap.Read(buf)
		if err != nil {
			return
		}
		f := heldFrame{append([]byte(nil), buf[:n]...), time.Now().Add(time.Duration(h.by.Load()))}
		select {
		case queue <- f:
		default:
		}
	}
}

func (h *holder) giveBack(queue <-chan heldFrame) {
	for f := range queue {
		time.Sleep(time.Until(f.due))
		_, _ = h.tap.Write(f.frame) // refused once it is closed
	}
}

func (h *holder) close() { _ = h.tap.Close() }
