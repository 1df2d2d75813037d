// Package hostsockets connects this machine's own sockets to services: programs at a cgroup
// redirect sockets from a VIP to an endpoint (Sockets), and connections whose source is an address
// of this machine avoid the ports of its sockets (Ports, docs/adr/0068-source-ports.md).
package hostsockets

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/datapath/tables"
)

// socketHooks returns the hooks of the programs of sock.bpf.c, by program. The last one begins to
// redirect sockets, so it is attached after the programs for their answers.
func socketHooks() []struct {
	program string
	attach  ebpf.AttachType
} {
	return []struct {
		program string
		attach  ebpf.AttachType
	}{
		{"loxilb_sock_release", ebpf.AttachCgroupInetSockRelease},
		{"loxilb_getpeername4", ebpf.AttachCgroupInet4GetPeername},
		{"loxilb_getpeername6", ebpf.AttachCgroupInet6GetPeername},
		{"loxilb_recvmsg4", ebpf.AttachCGroupUDP4Recvmsg},
		{"loxilb_recvmsg6", ebpf.AttachCGroupUDP6Recvmsg},
		{"loxilb_sendmsg4", ebpf.AttachCGroupUDP4Sendmsg},
		{"loxilb_sendmsg6", ebpf.AttachCGroupUDP6Sendmsg},
		{"loxilb_connect4", ebpf.AttachCGroupInet4Connect},
		{"loxilb_connect6", ebpf.AttachCGroupInet6Connect},
	}
}

// Sockets are the programs that redirect this machine's own sockets to endpoints.
type Sockets struct {
	shared   *loader.Collection
	tables   *tables.Tables
	programs *ebpf.Collection     // nil: not attached
	links    map[string]link.Link // by program

	mu    sync.Mutex
	leaks map[uint32]leak // of the last recount, by endpoint
}

// socketsMap and countsMap are the maps that outlive the process.
const socketsMap, countsMap = "sock_flows", "socket_counts"

// New attaches nothing yet.
func New(c *loader.Collection, services *tables.Tables) *Sockets {
	return &Sockets{shared: c, tables: services, links: map[string]link.Link{}, leaks: map[uint32]leak{}}
}

// Close releases the programs. Pinned ones continue to work.
func (s *Sockets) Close() error {
	if s == nil || s.programs == nil {
		return nil
	}
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	s.programs.Close()
	return errors.Join(errs...)
}

// AttachSockets redirects sockets of this network namespace that connect or send to a VIP to an
// endpoint. It replaces the programs of an earlier process without a gap. cgroup is a folder of
// cgroup v2 whose processes' sockets are redirected; empty: all that this process can see.
//
// It may be tried again after an error.
func (s *Sockets) AttachSockets(cgroup string) error {
	root, err := cgroupRoot(cgroup)
	if err != nil {
		return err
	}
	defer root.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return err
	}
	return s.attach(root, s.shared.PinFolder(pins.Sockets))
}

// open loads the programs, unless they are loaded.
func (s *Sockets) open() error {
	if s.programs != nil {
		return nil
	}
	programs, err := s.load()
	if err != nil {
		return err
	}
	if err := s.tables.AddCounts(programs.Variables); err != nil {
		programs.Close()
		return err
	}
	s.programs = programs
	return nil
}

// DetachSockets detaches the programs of an earlier process. Counts of its sockets decrease as they
// are closed.
func (s *Sockets) DetachSockets() error {
	if !s.shared.Pinned() {
		return nil
	}
	if err := pins.RemoveLinks(s.shared.PinFolder(pins.Sockets)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.shared.MapFolder(), countsMap)); err != nil {
		return nil // no programs were ever attached
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}

func (s *Sockets) load() (*ebpf.Collection, error) {
	spec, err := bpf.LoadSock()
	if err != nil {
		return nil, fmt.Errorf("read socket object: %w", err)
	}
	if err := s.shared.Configure(spec); err != nil {
		return nil, err
	}
	cookie, err := pins.Cookie()
	if err != nil {
		return nil, fmt.Errorf("identify the network namespace: %w", err)
	}
	if err := spec.Variables["own_namespace"].Set(cookie); err != nil {
		return nil, fmt.Errorf("set the network namespace: %w", err)
	}
	opts := ebpf.CollectionOptions{MapReplacements: s.maps()}
	loader.ShareMaps(spec, opts.MapReplacements, "packet_scratches", "sock_flows", "socket_counts", "sockets_found")
	if s.shared.Pinned() {
		opts.Maps.PinPath = s.shared.MapFolder()
		for _, name := range []string{socketsMap, countsMap} {
			spec.Maps[name].Pinning = ebpf.PinByName
			if err := pins.DropOtherLayout(s.shared.PinDir, name, spec.Maps[name]); err != nil {
				return nil, err
			}
		}
	}
	made, err := loader.MakeMaps(spec, opts)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version, whose sockets are not counted
		if err = os.Remove(filepath.Join(s.shared.MapFolder(), socketsMap)); err == nil {
			made, err = loader.MakeMaps(spec, opts)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make maps of socket programs: %w", err)
	}
	if s.shared.Pinned() {
		if err := pins.RecordLayouts(s.shared.PinDir, loader.PinnedByName(spec.Maps)); err != nil {
			made.Close()
			return nil, err
		}
	}
	if made.Programs, err = loader.LoadPrograms(spec, made.Maps); err != nil {
		made.Close()
		return nil, fmt.Errorf("load socket programs: %w", err)
	}
	return made, nil
}

func (s *Sockets) maps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"endpoint_states":  s.shared.Maps.EndpointStates,
		"endpoints":        s.shared.Maps.Endpoints,
		"idle_timeouts":    s.shared.Maps.IdleTimeouts,
		"local_addresses":  s.shared.Maps.LocalAddresses,
		"persist_timeouts": s.shared.Maps.PersistTimeouts,
		"persists":         s.shared.Maps.Persists,
		"service_ranges":   s.shared.Maps.ServiceRanges,
		"service_states":   s.shared.Maps.ServiceStates,
		"services":         s.shared.Maps.Services,
		"slots":            s.shared.Maps.Slots,
		"vips":             s.shared.Maps.Vips,
	}
}

func (s *Sockets) attach(root *os.File, folder string) error {
	if s.shared.Pinned() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make pin folder: %w", err)
		}
	}
	for _, h := range socketHooks() {
		if s.links[h.program] != nil {
			continue
		}
		l, err := s.attachOne(root, h.attach, s.programs.Programs[h.program], filepath.Join(folder, h.program))
		if err != nil {
			return fmt.Errorf("attach %s to the cgroup: %w", h.program, err)
		}
		s.links[h.program] = l
	}
	return nil
}

// attachOne makes a link, or updates the program of the existing link if it belongs to the same
// cgroup.
func (s *Sockets) attachOne(root *os.File, at ebpf.AttachType, program *ebpf.Program, pin string) (link.Link, error) {
	if s.shared.Pinned() {
		old, err := link.LoadPinnedLink(pin, nil)
		if err == nil {
			if sameCgroup(old, root) && old.Update(program) == nil {
				return old, nil
			}
			err = errors.Join(old.Unpin(), old.Close())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open pinned link: %w", err)
		}
	}
	l, err := link.AttachRawLink(link.RawLinkOptions{Target: int(root.Fd()), Program: program, Attach: at})
	if err != nil {
		return nil, err
	}
	if s.shared.Pinned() {
		if err := l.Pin(pin); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// The inode of a cgroup is its id.
func sameCgroup(l link.Link, root *os.File) bool {
	info, err := l.Info()
	if err != nil || info.Cgroup() == nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(root.Fd()), &st) == nil && info.Cgroup().CgroupId == st.Ino
}

// cgroupRoot opens a folder of cgroup v2. The root need not be mounted: `ip netns exec` hides its
// place.
func cgroupRoot(path string) (*os.File, error) {
	if path != "" {
		f, err := openCgroup2(path)
		if f == nil && err == nil { // a machine with both versions has version 2 in this folder
			f, _ = openCgroup2(filepath.Join(path, "unified"))
		}
		if f != nil || err != nil {
			return f, err
		}
		return nil, fmt.Errorf("open the cgroup: %s is not of cgroup v2", path)
	}
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open cgroup v2: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("open cgroup v2: %w", err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup v2: %w", err)
	}
	return os.NewFile(uintptr(fd), "cgroup2"), nil
}

// openCgroup2 opens a folder if it is of cgroup v2, otherwise it returns nil.
func openCgroup2(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the cgroup: %w", err)
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || uint32(st.Type) != unix.CGROUP2_SUPER_MAGIC {
		return nil, f.Close()
	}
	return f, nil
}
