package cluster_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/test/await"
)

// openFlows opens UDP flows, and waits until all nodes have them.
func (e *experiment) openFlows(flows int) {
	e.t.Helper()
	const perAddress, workers = 20_000, 8
	to := &unix.SockaddrInet4{Port: 53, Addr: netip.MustParseAddr(vip(false, "default")).As4()}
	for n := 0; n < flows; n += perAddress {
		must(e.t, e.fleet.client.AddAddress("eth0", netip.PrefixFrom(netip.AddrFrom4(flowAddress(n/perAddress)), 24)))
	}
	failed := make([]error, workers)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			failed[w] = e.fleet.client.Do(func() error {
				for n := w; n < flows; n += workers {
					from := &unix.SockaddrInet4{Port: 2000 + n%perAddress, Addr: flowAddress(n / perAddress)}
					if err := openFlow(from, to); err != nil {
						return fmt.Errorf("flow %d: %w", n, err)
					}
				}
				return nil
			})
		})
	}
	running.Wait()
	must(e.t, errors.Join(failed...))
	e.fleet.awaitPeers()
}

func flowAddress(n int) [4]byte { return [4]byte{10, defaultModeNetwork, 0, byte(10 + n)} }

// openFlow sends datagrams until two are answered. The second one proves that the client exists. It
// uses blocking system calls: a socket of the net package would cost several times as much.
func openFlow(from, to *unix.SockaddrInet4) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}), unix.Bind(fd, from), unix.Connect(fd, to))
	if err != nil {
		return err
	}
	buf := make([]byte, messageLength+1)
	for attempts, answers := 0, 0; answers < 2; attempts++ {
		_, err = unix.Write(fd, buf[:messageLength])
		if err == nil {
			_, err = unix.Read(fd, buf)
		}
		if err == nil {
			answers++
		} else if attempts > 10 {
			return err
		}
	}
	return nil
}

// floodSYNs sends SYNs from random addresses for a while, and measures how long records of other
// connections wait.
func (e *experiment) floodSYNs(d time.Duration) {
	e.t.Helper()
	m := e.fleet.nodes[0]
	before := e.recordsSent()
	stop := make(chan struct{})
	var running sync.WaitGroup
	var sent atomic.Uint64
	running.Go(func() {
		if err := e.fleet.client.Do(func() error { return sendSYNs(stop, &sent) }); err != nil {
			e.t.Errorf("flood: %v", err)
		}
	})
	began, lag := time.Now(), 0.0
	await.True(e.t, d+patience, "the end of the flood", func() bool {
		s, err := m.status()
		must(e.t, err)
		for _, peer := range s.Peers {
			lag = max(lag, peer.Lag)
		}
		return time.Since(began) > d
	})
	close(stop)
	running.Wait()
	seconds := time.Since(began).Seconds()
	e.record("SYNs per second", float64(sent.Load())/seconds)
	e.record("records per second, of all nodes to both peers", float64(e.recordsSent()-before)/seconds)
	e.record("longest lag, ms", lag)
}

// recordsSent returns how many records all nodes have sent.
func (e *experiment) recordsSent() (n uint64) {
	e.t.Helper()
	for _, m := range e.fleet.nodes {
		s, err := m.status()
		must(e.t, err)
		for _, peer := range s.Peers {
			n += peer.Sent
		}
	}
	return n
}

// sendSYNs sends SYNs from random addresses to the VIP of mode onearm.
func sendSYNs(stop <-chan struct{}, sent *atomic.Uint64) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := netip.MustParseAddr(vip(false, "onearm")).As4()
	random := rand.New(rand.NewPCG(1, 2))
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		packet := synFrom(random, to)
		if err := unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to}); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		sent.Add(1)
	}
}

// synFrom returns a SYN of a random client.
func synFrom(random *rand.Rand, to [4]byte) []byte {
	b := make([]byte, 40)
	b[0], b[3], b[8], b[9] = 0x45, 40, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint32(b[12:], 0x0b000000|random.Uint32()&0xffffff) // 11.0.0.0/8
	copy(b[16:], to[:])
	binary.BigEndian.PutUint16(b[20:], uint16(1024+random.IntN(60000)))
	binary.BigEndian.PutUint16(b[22:], 80)
	binary.BigEndian.PutUint32(b[24:], random.Uint32())
	b[32], b[33] = 0x50, 0x02
	binary.BigEndian.PutUint16(b[34:], 65535)
	sum := uint32(unix.IPPROTO_TCP + 20)
	for i := 12; i < 40; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[36:], ^uint16(sum))
	return b
}

// openFast opens connections to the targets as fast as the machine can, and measures the costs. All
// connections of mode default use one node, so it sends all records and the others receive them.
func (e *experiment) openFast(d time.Duration, all []target) {
	e.t.Helper()
	before, cpu, bytes := e.recordsSent(), e.cpuSeconds(), e.fleet.nodes[0].bytesSentTo(e.fleet.nodes[1])
	opened := e.clients.opened.Load()
	began := time.Now()
	stop := make(chan struct{})
	var running sync.WaitGroup
	for w := range 8 {
		running.Go(func() {
			for n := w; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				to := all[n%len(all)]
				conn, err := e.clients.dial(to)
				if err != nil {
					e.clients.recordLoss(loss{to, dialTimes{began, time.Now()}, 0, false, err})
					continue
				}
				e.clients.opened.Add(1)
				_ = conn.Close()
			}
		})
	}
	await.True(e.t, d+patience, "the end of the load", func() bool { return time.Since(began) > d })
	close(stop)
	running.Wait()
	seconds := time.Since(began).Seconds()
	e.record("new connections per second", float64(e.clients.opened.Load()-opened)/seconds)
	e.record("records per second, of all nodes to both peers", float64(e.recordsSent()-before)/seconds)
	e.record("Mbit/s from the first node to a peer", 8*(e.fleet.nodes[0].bytesSentTo(e.fleet.nodes[1])-bytes)/1e6/seconds)
	for i, used := range e.cpuSeconds() {
		e.record(fmt.Sprintf("CPU of node %s, %% of one", e.fleet.nodes[i].host.Name), 100*(used-cpu[i])/seconds)
	}
}

// bytesSentTo returns how many bytes a node has sent over its present connection to another node.
func (m *member) bytesSentTo(other *member) (bytes float64) {
	m.fleet.t.Helper()
	out, err := m.host.Run("ss", "-tinH", "dst", address(false, 2, other.number), "and", "dport", "=", ":22222")
	must(m.fleet.t, err)
	_, rest, _ := strings.Cut(out, "bytes_sent:")
	_, err = fmt.Sscan(rest, &bytes)
	must(m.fleet.t, err)
	return bytes
}

// cpuSeconds returns the CPU seconds that each node's process has used.
func (e *experiment) cpuSeconds() (list [fleetSize]float64) {
	e.t.Helper()
	const ticks = 100 // per second, of Linux's interface
	for i, m := range e.fleet.nodes {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.Pid()))
		must(e.t, err)
		words := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, w := range words[11:13] { // utime and stime
			n, err := strconv.Atoi(w)
			must(e.t, err)
			list[i] += float64(n) / ticks
		}
	}
	return list
}
