package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"loxilb/internal/host/machine"
	"loxilb/internal/lb/netobj"
)

// maxHalfOpen is the largest percentage of the table for half-open connections. TCP and the other
// protocols have this share each, and known clients may exceed it by half: 2 x 1.5 x 33 < 100.
const maxHalfOpen = 33

// maxConnections is the limit of the connection table's size (SIZE_BITS in bpf/abi.h), rounded. It
// is 40 GB of memory.
const maxConnections = 100_000_000

// maxAnnouncements is the largest number of announcements of a VIP: sending them takes a minute.
const maxAnnouncements = 30

const maxToken = 4096 // bytes of a token file that are read

// check makes a Config of the flags. name returns the flag or environment variable that set a
// value.
func (f *flags) check(name func(flag string) string) (*Config, error) {
	c := &Config{
		RedirectPeer: f.redirectPeer, LocalSockets: f.localSockets, Cgroup: f.cgroup, CTMax: f.ctMax, HalfOpen: f.halfOpen, IdleRST: f.idleRST, Page: f.page, BGP: f.bgp || f.peer, HashSeed: f.hashSeed, PinPath: f.pinPath,
		StateDir: f.stateDir, ProbeFiles: f.probeFiles, RoleHook: f.roleHook, ClusterInterface: f.clusterInterface, VIPAnnouncements: f.vipAdvRepeat, Detach: f.detach, Force: f.force, EndConnections: f.endConnections, CheckUpgrade: f.checkUpgrade, Attach: Attach(f.attach), XDP: XDP(f.xdp), IPsec: IPsec(f.ipsec),
	}
	// --check-upgrade and --detach run next to a daemon with the same flags, which writes the file
	if f.cpuProfile != "none" && !f.checkUpgrade && !f.detach {
		c.CPUProfile = f.cpuProfile
	}
	if f.force && !f.detach {
		return nil, &Error{"--force", "", "needs --detach"}
	}
	var err error
	if c.LogLevel, err = NewLogLevel(f.logLevel); err != nil {
		return nil, err
	}
	switch c.Attach {
	case AttachAuto, AttachTCX, AttachClsact:
	default:
		return nil, &Error{"--attach", f.attach, "is unknown (allowed: auto, tcx, clsact)"}
	}
	switch c.XDP {
	case XDPAuto, XDPNative, XDPGeneric, XDPOff:
	default:
		return nil, &Error{"--xdp", f.xdp, "is unknown (allowed: auto, native, generic, off)"}
	}
	if c.IPsec != IPsecRefuse && c.IPsec != IPsecIgnore {
		return nil, &Error{"--ipsec", f.ipsec, "is unknown (allowed: refuse, ignore)"}
	}
	if c.CTMax > maxConnections {
		return nil, &Error{"--ct-max", strconv.FormatUint(uint64(f.ctMax), 10), fmt.Sprintf("is out of range (allowed: 0 to %d)", maxConnections)}
	}
	if f.vipAdvRepeat < 1 || f.vipAdvRepeat > maxAnnouncements {
		return nil, &Error{"--vip-adv-repeat", strconv.Itoa(f.vipAdvRepeat), fmt.Sprintf("is out of range (allowed: 1 to %d)", maxAnnouncements)}
	}
	if c.HalfOpen < 0 || c.HalfOpen > maxHalfOpen {
		return nil, &Error{"--half-open-max", strconv.Itoa(f.halfOpen), fmt.Sprintf("is out of range (allowed: 0, which is no limit, to %d percent)", maxHalfOpen)}
	}
	if c.FlowLog, err = f.checkFlowLog(); err != nil {
		return nil, err
	}
	if c.OTLP, err = f.otlp.check(); err != nil {
		return nil, err
	}
	if c.Metrics, err = f.checkMetrics(); err != nil {
		return nil, err
	}
	if c.Whitelist, err = parseRegexp("--whitelist", f.whitelist); err != nil {
		return nil, err
	}
	if c.Blacklist, err = parseRegexp("--blacklist", f.blacklist); err != nil {
		return nil, err
	}
	if err := f.checkFiles(); err != nil {
		return nil, err
	}
	if f.stateDir == "" {
		return nil, &Error{"--state-dir", "", "is empty: services would be lost when the process ends"}
	}
	if f.probeFiles == "" {
		return nil, &Error{"--probe-files", "", "is empty: give a directory for the files of probes"}
	}
	if f.checkUpgrade && f.detach {
		return nil, &Error{"--check-upgrade", "", "cannot be combined with --detach"}
	}
	if err := f.checkNodes(c); err != nil {
		return nil, err
	}
	f.applyCompat(c)
	if f.noAPI || f.detach || f.checkUpgrade {
		c.API.Disabled = true
		return c, nil
	}
	if err := f.checkAPI(name, &c.API); err != nil {
		return nil, err
	}
	if f.compat {
		c.OpenAccess = c.API.openAccess()
	}
	return c, nil
}

// checkFiles refuses relative paths, a role hook that cannot run, and a log without a directory:
// the last two would otherwise fail late.
func (f *flags) checkFiles() error {
	for _, d := range [...]struct{ flag, path string }{{"--state-dir", f.stateDir}, {"--pin-path", f.pinPath}, {"--probe-files", f.probeFiles}, {"--config-path", f.bootFiles}, {"--role-hook", f.roleHook}} {
		if d.path != "" && !filepath.IsAbs(d.path) {
			return &Error{d.flag, d.path, "is not an absolute path"}
		}
	}
	if f.detach {
		return nil
	}
	if f.roleHook != "" {
		info, err := os.Stat(f.roleHook)
		if err != nil {
			return &Error{"--role-hook", f.roleHook, "cannot be run: " + cause(err)}
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return &Error{"--role-hook", f.roleHook, "is not an executable file (chmod 755)"}
		}
	}
	if f.flowLog.File != "" && f.flowLog.File != "-" {
		if _, err := os.Stat(filepath.Dir(f.flowLog.File)); err != nil {
			return &Error{"--flow-log", f.flowLog.File, "cannot be written: its directory: " + cause(err)}
		}
		if info, err := os.Lstat(f.flowLog.File); err == nil && !info.Mode().IsRegular() {
			return &Error{"--flow-log", f.flowLog.File, "is not a regular file"}
		}
	}
	return nil
}

// checkNodes checks the flags about other nodes.
func (f *flags) checkNodes(c *Config) (err error) {
	if c.Keepalive, err = f.keepalive(); err != nil {
		return err
	}
	if c.Store, err = f.store.check(); err != nil {
		return err
	}
	c.Cluster, err = f.cluster.check(f.compat, len(c.Store.Servers) > 0)
	return err
}

func (f *flags) checkAPI(name func(flag string) string, api *API) error {
	var err error
	if api.Plain, err = parseListen(name, "host", f.host, "port", f.port); err != nil {
		return err
	}
	if api.Socket, err = socketPath(f.socket); err != nil {
		return err
	}
	api.Insecure, api.Users = f.insecure, f.userService
	if err := f.checkUsers(api); err != nil {
		return err
	}
	if api.Hosts, err = checkHosts(f.apiHosts); err != nil {
		return err
	}
	if f.manualToken {
		if api.Token, err = readToken(f.manualTokenFile, f.compat); err != nil {
			return err
		}
	}
	if !api.Plain.Addr().IsLoopback() && !f.insecure {
		return &Error{name("host"), f.host, "is reachable from other machines without encryption: " +
			"use --tls with --manualtoken or --userservice and leave --host on loopback, or add --insecure"}
	}
	if !f.tls {
		return nil
	}
	if api.TLS, err = parseListen(name, "tls-host", f.tlsHost, "tls-port", f.tlsPort); err != nil {
		return err
	}
	if !api.TLS.Addr().IsLoopback() && api.Token == "" && !api.Users && !f.insecure {
		return &Error{name("tls-host"), f.tlsHost, "is reachable from other machines by anyone: " +
			"add --manualtoken with --manualtokenvalue FILE, --userservice, or --insecure"}
	}
	api.CertFile, api.KeyFile = f.cert, f.key
	return checkPEM(flagFile{}, flagFile{name("tls-certificate"), f.cert}, flagFile{name("tls-key"), f.key})
}

func socketPath(path string) (string, error) {
	switch {
	case path == socketAuto:
		return machine.SocketPath()
	case path != "" && !filepath.IsAbs(path):
		return "", &Error{"--socket", path, "is not an absolute path"}
	case len(path) > 107:
		// The kernel's limit is 108 bytes with the terminating NUL.
		return "", &Error{"--socket", path, "is longer than 107 bytes, the limit of a socket path"}
	}
	return path, nil
}

func parseListen(name func(string) string, hostFlag, host, portFlag, port string) (netip.AddrPort, error) {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, &Error{name(hostFlag), host, "is not an IP address"}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return netip.AddrPort{}, &Error{name(portFlag), port, "is not a port (allowed: 1 to 65535)"}
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

// readToken reads the first line of a file. Unless allowPublic is set, it refuses a file that users
// other than its owner and group can read.
func readToken(path string, allowPublic bool) (string, error) {
	const flag = "--manualtokenvalue"
	info, err := os.Stat(path)
	if err != nil {
		return "", &Error{flag, path, "cannot be read: " + cause(err)}
	}
	if info.Mode().Perm()&0o007 != 0 && !allowPublic {
		return "", &Error{flag, path, fmt.Sprintf("has mode %04o: everybody can read the token (chmod 600)", info.Mode().Perm())}
	}
	if info.Size() > maxToken {
		return "", &Error{flag, path, fmt.Sprintf("is larger than %d bytes", maxToken)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", &Error{flag, path, "cannot be read: " + cause(err)}
	}
	line, _, _ := strings.Cut(string(data), "\n")
	token := strings.TrimSpace(line)
	if token == "" {
		return "", &Error{flag, path, "has no token in its first line"}
	}
	return token, nil
}

// parseRegexp parses a regular expression. It returns nil for "none" and "".
func parseRegexp(flag, s string) (*regexp.Regexp, error) {
	if s == "" || s == "none" {
		return nil, nil
	}
	re, err := regexp.Compile(s)
	if err != nil {
		return nil, &Error{flag, s, "is not a regular expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")}
	}
	return re, nil
}

// cause returns the reason of a file error without the path, which the message already names.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// keepalive returns the BFD session of --ka and --preempt, or nil.
func (f *flags) keepalive() (*netobj.BFDSession, error) {
	if f.ka == "none" || f.ka == "" {
		if f.preempt {
			return nil, &Error{"--preempt", "", "needs --ka (for other sessions: loxicmd set bfd REMOTE --preempt)"}
		}
		return nil, nil
	}
	s, err := netobj.ParseKeepalive(f.ka)
	if err != nil {
		return nil, &Error{"--ka", f.ka, "is wrong: " + err.Error()}
	}
	s.Preempt = f.preempt
	return &s, nil
}
