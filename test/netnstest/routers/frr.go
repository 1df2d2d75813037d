// Package routers runs real routers in hosts of netnstest: FRR and BIRD. Each has its own
// directory of sockets and configuration, so many run at the same time and leave nothing behind.
package routers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loxilb/test/netnstest"
)

// startTime limits how long a daemon may take to answer after its start.
const startTime = 20 * time.Second

// frrPrograms is the directory of FRR's daemons on Debian.
const frrPrograms = "/usr/lib/frr"

// frrUser is the user that runs FRR. Debian's package creates it.
const frrUser = "frr"

// FRR is a router in a host.
type FRR struct {
	dir     string
	daemons map[string]*netnstest.Process
}

// StartFRR runs zebra, bgpd and bfdd with a configuration in vtysh's syntax, and waits until it is
// in effect. The lab's Close ends the daemons and removes their directory.
//
// StartFRR adds `no zebra nexthop kernel enable` for FRR 8.4: otherwise, the kernel would lack next
// hops that zebra shows after a link has returned.
func StartFRR(lab *netnstest.Lab, h *netnstest.Host, config string) (*FRR, error) {
	dir, err := os.MkdirTemp("", "frr-")
	if err != nil {
		return nil, fmt.Errorf("start FRR in %s: %w", h.Name, err)
	}
	lab.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // in the directory of temporary files
	f := &FRR{dir: dir, daemons: map[string]*netnstest.Process{}}
	if err := f.start(h, "no zebra nexthop kernel enable\n"+config); err != nil {
		return nil, fmt.Errorf("start FRR in %s: %w", h.Name, err)
	}
	return f, nil
}

func (f *FRR) start(h *netnstest.Host, config string) error {
	if err := f.write(config); err != nil {
		return err
	}
	for _, daemon := range []string{"zebra", "bgpd", "bfdd"} { // the others rarely retry to connect to zebra
		if err := f.run(h, daemon); err != nil {
			return err
		}
	}
	_, err := f.vtysh("-f", filepath.Join(f.dir, "frr.conf"))
	return err
}

// write creates the router's files, readable by frrUser.
func (f *FRR) write(config string) error {
	for name, text := range map[string]string{
		"frr.conf":   config,
		"zebra.conf": "",
		"bgpd.conf":  "",
		"bfdd.conf":  "",
		"vtysh.conf": "username root nopassword\n",
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	u, err := user.Lookup(frrUser)
	if err != nil {
		return err
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	return errors.Join(uidErr, gidErr, os.Chown(f.dir, uid, gid))
}

func (f *FRR) run(h *netnstest.Host, daemon string) error {
	args := []string{
		filepath.Join(frrPrograms, daemon), "--vty_socket", f.dir, "-z", filepath.Join(f.dir, "zserv.api"),
		"-i", filepath.Join(f.dir, daemon+".pid"), "-f", filepath.Join(f.dir, daemon+".conf"),
		"-P", "0", "-u", frrUser, "-g", frrUser, "--log", "stdout",
	}
	ready := []string{daemon + ".vty"}
	switch daemon {
	case "zebra":
		ready = append(ready, "zserv.api")
	case "bfdd":
		args = append(args, "--bfdctl", filepath.Join(f.dir, "bfdd.sock"))
	}
	p, err := h.Start(netnstest.Command{Args: args})
	if err != nil {
		return err
	}
	f.daemons[daemon] = p
	for _, name := range ready {
		if err := waitFor(p, filepath.Join(f.dir, name)); err != nil {
			return fmt.Errorf("%s: %w", daemon, err)
		}
	}
	return nil
}

// waitFor waits until a process has created a file.
func waitFor(p *netnstest.Process, path string) error {
	for deadline := time.Now().Add(startTime); ; time.Sleep(5 * time.Millisecond) {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("ended: %s", p.Output())
		default:
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return fmt.Errorf("%w: %s", err, p.Output())
		}
	}
}

// Vtysh runs commands and returns their output.
func (f *FRR) Vtysh(commands ...string) (string, error) {
	var args []string
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	return f.vtysh(args...)
}

// Configure changes the configuration.
func (f *FRR) Configure(lines ...string) error {
	_, err := f.Vtysh(append([]string{"configure terminal"}, lines...)...)
	return err
}

func (f *FRR) vtysh(args ...string) (string, error) {
	args = append([]string{"--vty_socket", f.dir, "--config_dir", f.dir}, args...)
	out, err := exec.Command("vtysh", args...).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("% Unknown command")) {
		return string(out), fmt.Errorf("vtysh %q: %w: %s", args, errors.Join(err, errors.New("refused")), out)
	}
	return string(out), nil
}

// Query runs a command in one daemon. It takes less than a millisecond, since it uses vtysh's
// protocol instead of vtysh: a command ends with a zero byte. The answer is a text, three zero
// bytes and a status.
func (f *FRR) Query(daemon, command string) (string, error) {
	c, err := net.Dial("unix", filepath.Join(f.dir, daemon+".vty"))
	if err != nil {
		return "", err
	}
	defer c.Close() //nolint:errcheck // nothing is written after the command
	if _, err := c.Write([]byte("enable\x00" + command + "\x00")); err != nil {
		return "", err
	}
	end := []byte{0, 0, 0}
	var answer []byte
	buffer := make([]byte, 1<<16)
	for {
		n, err := c.Read(buffer)
		answer = append(answer, buffer[:n]...)
		if parts := bytes.SplitN(answer, end, 3); len(parts) == 3 && len(parts[2]) > 0 {
			return string(parts[1][1:]), nil // the status of enable comes first
		}
		if err != nil {
			return "", fmt.Errorf("%s: %q: %w", daemon, command, errors.Join(err, io.ErrUnexpectedEOF))
		}
	}
}

// Path is a path of bgpd to a prefix.
type Path struct {
	Valid     bool
	Best      bool
	Stale     bool
	From      string // address of the neighbor
	NextHops  []string
	ASPath    string
	MED       uint32
	LocalPref uint32
}

// frrPath is a path in FRR's JSON.
type frrPath struct {
	Valid    bool   `json:"valid"`
	Bestpath any    `json:"bestpath"`
	Stale    bool   `json:"stale"`
	Metric   uint32 `json:"metric"`
	LocPrf   uint32 `json:"locPrf"`
	PeerID   string `json:"peerId"`
	Path     string `json:"path"`
	NextHops []struct {
		IP string `json:"ip"`
	} `json:"nexthops"`
}

// Routes returns the paths of bgpd, without communities.
func (f *FRR) Routes() (map[netip.Prefix][]Path, error) {
	routes := map[netip.Prefix][]Path{}
	for _, family := range []string{"ipv4", "ipv6"} {
		text, err := f.Query("bgpd", "show bgp "+family+" unicast json")
		if err != nil {
			return nil, err
		}
		var table struct {
			Routes map[string][]frrPath `json:"routes"`
		}
		if err := json.Unmarshal([]byte(text), &table); err != nil {
			return nil, fmt.Errorf("routes of FRR: %w: %.200s", err, text)
		}
		for prefix, paths := range table.Routes {
			p, err := netip.ParsePrefix(prefix)
			if err != nil {
				return nil, fmt.Errorf("routes of FRR: %w", err)
			}
			for _, x := range paths {
				routes[p] = append(routes[p], x.path())
			}
		}
	}
	return routes, nil
}

func (x frrPath) path() Path {
	p := Path{
		Valid: x.Valid, Best: x.Bestpath != nil, Stale: x.Stale, From: x.PeerID,
		ASPath: x.Path, MED: x.Metric, LocalPref: x.LocPrf,
	}
	for _, n := range x.NextHops {
		p.NextHops = append(p.NextHops, n.IP)
	}
	return p
}

// Communities returns the communities of the best path to a prefix.
func (f *FRR) Communities(prefix netip.Prefix) (string, error) {
	family := "ipv4"
	if prefix.Addr().Is6() {
		family = "ipv6"
	}
	text, err := f.Query("bgpd", fmt.Sprintf("show bgp %s unicast %v json", family, prefix))
	if err != nil {
		return "", err
	}
	var route struct {
		Paths []struct {
			Community struct {
				String string `json:"string"`
			} `json:"community"`
		} `json:"paths"`
	}
	err = json.Unmarshal([]byte(text), &route)
	if err == nil && len(route.Paths) == 0 {
		err = errors.New("FRR has none")
	}
	if err != nil {
		return "", fmt.Errorf("path to %v: %w: %s", prefix, err, text)
	}
	return route.Paths[0].Community.String, nil
}

// Neighbor is the state of a session of bgpd.
type Neighbor struct {
	State       string `json:"bgpState"`
	Established int    `json:"connectionsEstablished"`
	Dropped     int    `json:"connectionsDropped"`
	LastReset   string `json:"lastResetDueTo"`
	LastMessage string `json:"lastShutdownDescription"`
}

// Neighbor returns the session with an address or interface.
func (f *FRR) Neighbor(name string) (Neighbor, error) {
	text, err := f.Query("bgpd", "show bgp neighbors "+name+" json")
	if err != nil {
		return Neighbor{}, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return Neighbor{}, fmt.Errorf("neighbor %s of FRR: %w: %.200s", name, err, text)
	}
	var n Neighbor
	err = json.Unmarshal(all[name], &n)
	return n, err
}

// Log returns the log of a daemon.
func (f *FRR) Log(daemon string) string { return strings.TrimSpace(f.daemons[daemon].Output()) }

// Daemon returns the process of a daemon: "zebra", "bgpd" or "bfdd".
func (f *FRR) Daemon(name string) *netnstest.Process { return f.daemons[name] }
