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

// crowdOfFlows opens flows that are answered twice, and waits until all nodes have them.
func (p *proof) crowdOfFlows(flows int) {
	p.t.Helper()
	const perAddress, workers = 20_000, 8
	to := &unix.SockaddrInet4{Port: 53, Addr: netip.MustParseAddr(vip(false, "default")).As4()}
	for n := 0; n < flows; n += perAddress {
		must(p.t, p.f.client.AddAddress("eth0", netip.PrefixFrom(netip.AddrFrom4(flowAddress(n/perAddress)), 24)))
	}
	failed := make([]error, workers)
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			failed[w] = p.f.client.Do(func() error {
				for n := w; n < flows; n += workers {
					from := &unix.SockaddrInet4{Port: 2000 + n%perAddress, Addr: flowAddress(n / perAddress)}
					if err := askTwice(from, to); err != nil {
						return fmt.Errorf("flow %d: %w", n, err)
					}
				}
				return nil
			})
		})
	}
	running.Wait()
	must(p.t, errors.Join(failed...))
	p.f.awaitPeers()
}

func flowAddress(n int) [4]byte { return [4]byte{10, clientsOfDefault, 0, byte(10 + n)} }

// askTwice has two datagrams from an address answered: the second one proves that the client
// exists. System calls block: a socket of the net package would cost several times as much.
func askTwice(from, to *unix.SockaddrInet4) error {
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

// flooded sends SYNs from random addresses for a while. The records of real connections must not
// wait for those of the flood.
func (p *proof) flooded(d time.Duration) {
	p.t.Helper()
	m := p.f.nodes[0]
	before := p.sent()
	stop := make(chan struct{})
	var running sync.WaitGroup
	var sent atomic.Uint64
	running.Go(func() {
		if err := p.f.client.Do(func() error { return flood(stop, &sent) }); err != nil {
			p.t.Errorf("flood: %v", err)
		}
	})
	began, lag := time.Now(), 0.0
	await.True(p.t, d+patience, "the end of the flood", func() bool {
		s, err := m.status()
		must(p.t, err)
		for _, peer := range s.Peers {
			lag = max(lag, peer.Lag)
		}
		return time.Since(began) > d
	})
	close(stop)
	running.Wait()
	seconds := time.Since(began).Seconds()
	p.note("SYNs per second", float64(sent.Load())/seconds)
	p.note("records per second, of all nodes to both peers", float64(p.sent()-before)/seconds)
	p.note("longest lag, ms", lag)
}

// sent returns how many records all nodes have sent.
func (p *proof) sent() (n uint64) {
	p.t.Helper()
	for _, m := range p.f.nodes {
		s, err := m.status()
		must(p.t, err)
		for _, peer := range s.Peers {
			n += peer.Sent
		}
	}
	return n
}

// flood sends SYNs from random addresses to the VIP of mode onearm.
func flood(stop <-chan struct{}, sent *atomic.Uint64) error {
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

// busy has clients open connections of the modes as fast as they can for a while, and notes what
// that costs. Mode default has one node, which then sends records, while the others receive them.
func (p *proof) busy(d time.Duration, all []target) {
	p.t.Helper()
	before, cpu, bytes := p.sent(), p.cpus(), p.f.nodes[0].sentTo(p.f.nodes[1])
	opened := p.c.opened.Load()
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
				conn, err := p.c.dial(to)
				if err != nil {
					p.c.lost(loss{to, birth{began, time.Now()}, 0, false, err})
					continue
				}
				p.c.opened.Add(1)
				_ = conn.Close()
			}
		})
	}
	await.True(p.t, d+patience, "the end", func() bool { return time.Since(began) > d })
	close(stop)
	running.Wait()
	seconds := time.Since(began).Seconds()
	p.note("new connections per second", float64(p.c.opened.Load()-opened)/seconds)
	p.note("records per second, of all nodes to both peers", float64(p.sent()-before)/seconds)
	p.note("Mbit/s from the first node to a peer", 8*(p.f.nodes[0].sentTo(p.f.nodes[1])-bytes)/1e6/seconds)
	for i, used := range p.cpus() {
		p.note(fmt.Sprintf("CPU of node %s, %% of one", p.f.nodes[i].host.Name), 100*(used-cpu[i])/seconds)
	}
}

// sentTo returns how many bytes a node has sent over its present connection to another one.
func (m *member) sentTo(other *member) (bytes float64) {
	m.f.t.Helper()
	out, err := m.host.Run("ss", "-tinH", "dst", address(false, 2, other.number), "and", "dport", "=", ":22222")
	must(m.f.t, err)
	_, rest, _ := strings.Cut(out, "bytes_sent:")
	_, err = fmt.Sscan(rest, &bytes)
	must(m.f.t, err)
	return bytes
}

// cpus returns the CPU seconds that each node's process has used.
func (p *proof) cpus() (list [fleetSize]float64) {
	p.t.Helper()
	const ticks = 100 // per second, of Linux's interface
	for i, m := range p.f.nodes {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.Pid()))
		must(p.t, err)
		words := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		for _, w := range words[11:13] { // of user and system mode
			n, err := strconv.Atoi(w)
			must(p.t, err)
			list[i] += float64(n) / ticks
		}
	}
	return list
}
