package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"loxilb/test/netnstest"
	"loxilb/test/quictest"
)

// serverID returns the server ID of an endpoint by its number: one byte.
func serverID(endpoint int) byte { return byte(endpoint + 1) }

func serveQUIC(ctx context.Context, r *rig, h *netnstest.Host) error {
	number := 0
	for i := range r.serving {
		if r.serving[i] == h {
			number = i
		}
	}
	p, err := r.start(h, filepath.Join(r.bin, "bench"), "quic", "serve", strconv.Itoa(quicPort), strconv.Itoa(int(serverID(number))))
	if err != nil {
		return err
	}
	return awaitLine(ctx, p, "listening")
}

// quicRequests measures requests of one connection.
func quicRequests(_ context.Context, r *rig, s setting, to netip.AddrPort) ([]sample, error) {
	text, err := r.load(filepath.Join(r.bin, "bench"), "quic", "-seconds", fmt.Sprint(s.Seconds), to.String())
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	rate, err := strconv.ParseFloat(lines[len(lines)-1], 64) // quic-go may warn before about sizes of buffers
	if err != nil {
		return nil, fmt.Errorf("the client printed %.500q: %w", text, err)
	}
	return []sample{{Value: rate}}, nil
}

// quicMain is the server of an endpoint, `bench quic serve PORT SERVERID`, or the load, `bench quic
// [-seconds N] ADDRESS:PORT`, which prints the rate of requests.
func quicMain(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "serve" {
		return quicServe(ctx, args[1], args[2])
	}
	flags := flag.NewFlagSet("quic", flag.ContinueOnError)
	seconds := flags.Float64("seconds", 3, "duration in seconds")
	if err := flags.Parse(args); err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("usage: bench quic serve PORT SERVERID, or bench quic [-seconds N] ADDRESS:PORT: %w", err)
	}
	rate, err := quicRate(ctx, to, duration(*seconds))
	if err == nil {
		fmt.Println(rate)
	}
	return err
}

func quicServe(ctx context.Context, port, server string) error {
	id, err := strconv.ParseUint(server, 10, 8)
	if err != nil {
		return fmt.Errorf("server ID %q is not a byte", server)
	}
	p, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	end, err := quictest.Serve(p, &quictest.IDs{Server: []byte{byte(id)}, Nonce: 7}, "x")
	if err != nil {
		return err
	}
	fmt.Println("listening")
	<-ctx.Done()
	return end()
}

// quicRate returns the rate of requests in 16 streams of one connection.
func quicRate(ctx context.Context, to netip.AddrPort, d time.Duration) (float64, error) {
	const streams = 16
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	listen := func() (net.PacketConn, error) { return net.ListenPacket("udp", ":0") }
	c, err := quictest.Dial(dial, listen, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return 0, err
	}
	var asking sync.WaitGroup
	var answers atomic.Uint64
	failed := make(chan error, streams)
	start := time.Now()
	for range streams {
		asking.Go(func() {
			for time.Since(start) < d {
				ask, cancel := context.WithTimeout(ctx, 5*time.Second)
				_, err := c.Ask(ask)
				cancel()
				if err != nil {
					failed <- err
					return
				}
				answers.Add(1)
			}
		})
	}
	asking.Wait()
	took := time.Since(start)
	close(failed)
	return float64(answers.Load()) / took.Seconds(), errors.Join(<-failed, c.Close())
}
