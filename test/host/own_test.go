package host

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ownTransfers returns the transfers of the guest's own processes.
func (n *network) ownTransfers(address string, port int, source string) []transfer {
	url := fmt.Sprintf("http://%s:%d", bracketed(address), port)
	run := func(args ...string) (string, error) { return n.try("%s", strings.Join(args, " ")) }
	return []transfer{
		{"the source", func() error { return sees(url, source, run) }},
		{"a download", func() error { return n.ownDownload(url) }},
		{"an upload", func() error { return n.ownUpload(url) }},
		{"iperf3", func() error { return eachWay(n.server, address, run) }},
	}
}

// sees returns an error unless the endpoint sees the given source of a connection.
func sees(url, want string, run func(...string) (string, error)) error {
	out, err := run("curl", "-gsSf", "--max-time", patience, url+"/source")
	if got := strings.TrimSpace(out); err == nil && got != want {
		return fmt.Errorf("the endpoint sees %s, want %s", got, want)
	}
	return err
}

// ownDownload fetches the large file.
func (n *network) ownDownload(url string) error {
	out, err := n.try("curl -gsSf --max-time %s -o /tmp/large %s/large; sha256sum </tmp/large", patience, url)
	if err != nil {
		return err
	}
	if got, want := strings.Fields(out)[0], fmt.Sprintf("%x", sha256.Sum256(content())); got != want {
		return fmt.Errorf("the guest's own download of %s is corrupt: SHA-256 %s, not %s", url, got, want)
	}
	return nil
}

// ownUpload sends the file that ownDownload has fetched.
func (n *network) ownUpload(url string) error {
	name := fmt.Sprint("upload", uploads.Add(1))
	if _, err := n.try("curl -gsSf --max-time %s -T /tmp/large %s/%s", patience, url, name); err != nil {
		return err
	}
	got := filepath.Join(n.dir, n.server.Name, name)
	return errors.Join(compareFile("upload to "+url, got), os.Remove(got))
}

// checkUnreachable checks that the guest's own processes do not reach a VIP.
func (n *network) checkUnreachable(address string) {
	n.t.Helper()
	if out, err := n.try("curl -gsSf --max-time 5 http://%s:8000/source", bracketed(address)); err == nil {
		n.t.Errorf("without --localsockpolicy, a process of the guest reaches %s: the endpoint sees %s", address, out)
	}
}
