package scenarios

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/kube/test/rig"
)

// watcher observes the connection of a load's present request.
type watcher struct {
	mu   sync.Mutex
	conn *watchedConn
}

// watchedConn is a connection that records the stage of its request before it is closed.
type watchedConn struct {
	net.Conn
	stage func() string
}

// dial returns a dialer whose last connection is observed.
func (w *watcher) dial(c client) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		watched := &watchedConn{Conn: conn}
		watched.stage = sync.OnceValue(watched.look)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.conn = watched
		return watched, nil
	}
}

// forget forgets the connection of the previous request.
func (w *watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = nil
}

// stage returns the stage that the last request reached.
func (w *watcher) stage() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return "not connected"
	}
	return w.conn.stage()
}

// look returns the stage of the request. If the pod's kernel has acknowledged it, balancers and
// network forward packets in both directions, and the pod's process is late.
func (c *watchedConn) look() string {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return fmt.Sprintf("%T", c.Conn)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err.Error()
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	const synAndRequest = 2 // minimum of acknowledged bytes: the SYN counts as one
	switch err := errors.Join(err, failed); {
	case err != nil:
		return err.Error()
	case info.Unacked == 0 && info.Bytes_acked >= synAndRequest:
		return "the pod's kernel has the request"
	}
	return "connected, request not acknowledged"
}

func (c *watchedConn) Close() error {
	c.stage()
	return c.Conn.Close()
}

// Logs and events from this long before to this long after an outage are logged.
const (
	before = 5 * time.Second
	after  = time.Second
)

// period is a time in which requests of loads failed.
type period struct{ from, to time.Time }

// logOutages logs what happened in a cluster while requests of loads failed: logs of balancers and
// controllers, earlier changes of roles, and events. Those include failures of kubelet's probes,
// which do not pass a balancer.
func logOutages(t testing.TB, loads ...*load) {
	t.Helper()
	c := loads[0].cluster
	lines := append(podLogs(c), events(c)...)
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	for _, m := range outagePeriods(loads) {
		var text strings.Builder
		for _, l := range lines {
			near := !l.at.Before(m.from.Add(-before)) && !l.at.After(m.to.Add(after))
			role := l.isRole() && l.at.Before(m.from)
			if near && !l.isDebug() || role {
				fmt.Fprintf(&text, "\n%+7.1f s  %.230s", l.at.Sub(m.from).Seconds(), l.text)
			}
		}
		t.Logf("around %s, when requests failed for %.1f s:%s", m.from.UTC().Format("15:04:05.0"), m.to.Sub(m.from).Seconds(), text.String())
	}
}

// outagePeriods returns the periods of the first outages of loads. Outages close to each other are
// one period.
func outagePeriods(loads []*load) (out []period) {
	var all []period
	for _, l := range loads {
		for _, o := range l.outages {
			all = append(all, period{l.began.Add(o.from), l.began.Add(o.to)})
		}
	}
	slices.SortFunc(all, func(a, b period) int { return a.from.Compare(b.from) })
	for _, m := range all {
		if n := len(out); n > 0 && m.from.Before(out[n-1].to.Add(after)) {
			if m.to.After(out[n-1].to) {
				out[n-1].to = m.to
			}
			continue
		}
		out = append(out, m)
	}
	const few = 3
	return out[:min(len(out), few)]
}

// line is a line of a log, or an event.
type line struct {
	at   time.Time
	text string
}

func (l line) isDebug() bool { return strings.Contains(l.text, "level=DEBUG") }

func (l line) isRole() bool {
	return strings.Contains(l.text, "role of this node") || strings.Contains(l.text, "becomes MASTER")
}

// keepLogs makes nodes keep the logs of pods that are deleted later.
func keepLogs(c *rig.Cluster) {
	for _, n := range c.Nodes {
		_, _ = n.Logs("kube-system") // after an error, a report lacks these logs
	}
}

// podLogs returns the logs of balancers and controllers, also of deleted pods.
func podLogs(c *rig.Cluster) (out []line) {
	for _, n := range c.Nodes {
		logs, err := n.Logs("kube-system")
		if err != nil {
			out = append(out, line{time.Now(), err.Error()})
		}
		for pod, file := range logs {
			text, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for row := range bytes.Lines(text) { // TIME STREAM F time=TIME level=...
				stamp, rest, _ := strings.Cut(string(bytes.TrimSpace(row)), " ")
				_, rest, _ = strings.Cut(rest, " F ")
				if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
					out = append(out, line{at, n.Name + " " + pod + " " + rest[max(0, strings.Index(rest, "level=")):]})
				}
			}
		}
	}
	return out
}

// events returns the latest events of all objects.
func events(c *rig.Cluster) (out []line) {
	var list struct {
		Items []struct {
			LastTimestamp   time.Time
			InvolvedObject  struct{ Kind, Name string }
			Reason, Message string
		}
	}
	if err := c.Get(context.Background(), "/api/v1/events", &list); err != nil {
		return []line{{time.Now(), err.Error()}}
	}
	for _, e := range list.Items {
		out = append(out, line{e.LastTimestamp, fmt.Sprintf("%s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)})
	}
	return out
}
