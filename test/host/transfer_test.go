package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// Sizes of transfers. An emulated machine forwards a few MB/s at worst.
const (
	largeBytes = 2 << 20
	downloads  = 3
	requests   = 40
	iperfBytes = 4 << 20
	smallPage  = "a small page\n"
)

// patience is the time limit of each transfer, in seconds.
const patience = "60"

// content returns the content of the large file: pseudo-random bytes.
func content() []byte {
	b := make([]byte, largeBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// uploads counts uploaded files, whose names need numbers.
var uploads atomic.Int64

// download fetches the large file from a namespace, several times at once, and compares it.
func (n *network) download(from *netnstest.Host, url string) error {
	dir, err := os.MkdirTemp(n.dir, "got")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	_, err = from.Run("curl", "-sSf", "--max-time", patience, "-Z", fmt.Sprintf("%s/large?[1-%d]", url, downloads), "-o", dir+"/#1")
	if err != nil {
		return err
	}
	for i := range downloads {
		if err := compareFile(fmt.Sprintf("download %d of %s", i+1, url), filepath.Join(dir, fmt.Sprint(i+1))); err != nil {
			return err
		}
	}
	return nil
}

// upload sends the large file from a namespace, and compares what has arrived at the other side.
func (n *network) upload(from, to *netnstest.Host, url string) error {
	name := fmt.Sprint("upload", uploads.Add(1))
	_, err := from.Run("curl", "-gsSf", "--max-time", patience, "-T", filepath.Join(n.dir, from.Name, "large"), url+"/"+name)
	if err != nil {
		return err
	}
	got := filepath.Join(n.dir, to.Name, name)
	return errors.Join(compareFile("upload to "+url, got), os.Remove(got))
}

// compareFile compares a transferred file with the large file.
func compareFile(what, path string) error {
	got, err := os.ReadFile(path)
	if want := content(); err == nil && !bytes.Equal(got, want) {
		return fmt.Errorf("%s is corrupt: %d bytes of %d, different from %d on",
			what, len(got), len(want), difference(got, want))
	}
	return err
}

// difference returns the first position at which two files differ.
func difference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// request opens many connections, eight at a time, for a small page each.
func (n *network) request(from *netnstest.Host, url string) error {
	out, err := from.Run("curl", "-sSf", "--max-time", patience, "-Z", "--parallel-max", "8", "--parallel-immediate",
		"-H", "Connection: close", fmt.Sprintf("%s/small?[1-%d]", url, requests))
	if err != nil {
		return err
	}
	if got := strings.Count(out, smallPage); got != requests {
		return fmt.Errorf("%d answers of %d from %s", got, requests, url)
	}
	return nil
}

// iperf runs iperf3 in both directions.
func (n *network) iperf(from, to *netnstest.Host, address string) error {
	return eachWay(to, address, from.Run)
}

// eachWay runs iperf3 in both directions, each time with a new server.
func eachWay(to *netnstest.Host, address string, run func(...string) (string, error)) error {
	for _, direction := range []string{"", "--reverse"} {
		server, err := startIperf(to)
		if err != nil {
			return err
		}
		const command = "iperf3 -J -c %s -n %d -P 2 --connect-timeout 10000 %s"
		out, err := run(strings.Fields(fmt.Sprintf(command, address, iperfBytes, direction))...)
		server.Kill()
		if err != nil {
			return err
		}
		if err := checkIperf(out); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace("iperf3 "+direction), err)
		}
	}
	return nil
}

// checkIperf checks that data has arrived. The receiver stops counting when the sender finishes,
// and most of the data may be in buffers then.
func checkIperf(out string) error {
	var report struct {
		Error string
		End   struct {
			Received struct{ Bytes int64 } `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return fmt.Errorf("read the report: %w", err)
	}
	if got := report.End.Received.Bytes; report.Error != "" || got == 0 {
		return fmt.Errorf("received %d bytes of %d, error %q", got, iperfBytes, report.Error)
	}
	return nil
}

// startIperf starts a server for one test. A shared server would refuse a test while it ends the
// previous one.
func startIperf(h *netnstest.Host) (*netnstest.Process, error) {
	p, err := h.Start(netnstest.Command{Args: []string{"iperf3", "-s", "-1", "--forceflush"}})
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(rig.Patience); !strings.Contains(p.Output(), "Server listening"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("iperf3 does not listen: %s", p.Output())
		}
	}
	return p, nil
}

// checksumErrors returns how many packets both sides have dropped because of their checksums.
func (n *network) checksumErrors() int {
	return rig.ChecksumErrors(n.t, n.client) + rig.ChecksumErrors(n.t, n.server)
}
