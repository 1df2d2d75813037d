package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"loxilb/internal/netnstest"
	"loxilb/test/net/rig"
)

// What is transferred. An emulated machine forwards a few MB/s at worst.
const (
	largeBytes = 2 << 20
	downloads  = 3
	requests   = 40
	iperfBytes = 4 << 20
	smallPage  = "a small page\n"
)

// patience is for each transfer.
const patience = "60"

// content returns the large file, whose parts all differ.
func content() []byte {
	b := make([]byte, largeBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// uploads numbers the files.
var uploads atomic.Int64

// download has a namespace fetch the large file, several times at once, and compares it.
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
		got, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i+1)))
		if err != nil {
			return err
		}
		if want := content(); !bytes.Equal(got, want) {
			return fmt.Errorf("download %d of %s is corrupt: %d bytes of %d, different from %d on", i+1, url, len(got), len(want), difference(got, want))
		}
	}
	return nil
}

// upload has a namespace send the large file, and compares what has arrived at the other side.
func (n *network) upload(from, to *netnstest.Host, url string) error {
	name := fmt.Sprint("upload", uploads.Add(1))
	_, err := from.Run("curl", "-gsSf", "--max-time", patience, "-T", filepath.Join(n.dir, from.Name, "large"), url+"/"+name)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(n.dir, to.Name, name))
	if err != nil {
		return err
	}
	if want := content(); !bytes.Equal(got, want) {
		return fmt.Errorf("upload to %s is corrupt: %d bytes of %d, different from %d on", url, len(got), len(want), difference(got, want))
	}
	return os.Remove(filepath.Join(n.dir, to.Name, name))
}

// difference is the first place where two files differ.
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

// iperf has iperf3 send in both directions.
func (n *network) iperf(from, to *netnstest.Host, address string) error {
	for _, direction := range [][]string{nil, {"-R"}} {
		server, err := startIperf(to)
		if err != nil {
			return err
		}
		args := append([]string{"iperf3", "-J", "-c", address, "-n", fmt.Sprint(iperfBytes), "-P", "2", "--connect-timeout", "10000"}, direction...)
		out, err := from.Run(args...)
		server.Kill()
		if err != nil {
			return err
		}
		var report struct {
			Error string
			End   struct {
				Received struct{ Bytes int64 } `json:"sum_received"`
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return fmt.Errorf("read the report of iperf3: %w", err)
		}
		if report.Error != "" || report.End.Received.Bytes == 0 {
			return fmt.Errorf("iperf3 %v: received %d bytes, error %q", direction, report.End.Received.Bytes, report.Error)
		}
	}
	return nil
}

// startIperf starts a server for one test. One that serves several refuses a test while it ends the
// one before.
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

// checksumErrors is how many packets both sides have thrown away for their sums.
func (n *network) checksumErrors() int {
	return rig.ChecksumErrors(n.t, n.client) + rig.ChecksumErrors(n.t, n.server)
}

// ownTransfer has a process of the guest itself fetch the large file.
func (n *network) ownDownload(url string) error {
	out, err := n.try("curl -gsSf --max-time %s -o /tmp/got %s/large; sha256sum </tmp/got", patience, url)
	if err != nil {
		return err
	}
	if got, want := strings.Fields(out)[0], fmt.Sprintf("%x", sha256.Sum256(content())); got != want {
		return fmt.Errorf("the guest's own download of %s is corrupt: SHA-256 %s, not %s", url, got, want)
	}
	return nil
}
