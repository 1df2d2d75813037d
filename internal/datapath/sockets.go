package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/pins"
)

// socketHooks are the hooks of the programs of sock.bpf.c, by program. The last is the one that begins to lead
// sockets elsewhere: by then their answers are understood.
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

// sockets are the programs that lead this machine's own sockets to endpoints.
type sockets struct {
	programs *ebpf.Collection
	links    []link.Link
	pinned   bool
}

func (s *sockets) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, l := range s.links {
		errs = append(errs, l.Close())
	}
	s.programs.Close()
	return errors.Join(errs...)
}

// tell has the programs know what others do of services that are rare.
func (s *sockets) tell(t *tables) error {
	if s == nil {
		return nil
	}
	for name, n := range map[string]uint32{"range_services": t.ranged, "marked_services": t.marked, "host_services": t.hosts} {
		if err := s.programs.Variables[name].Set(n); err != nil {
			return fmt.Errorf("count services: %w", err)
		}
	}
	return nil
}

// AttachSockets has sockets of this network namespace that connect or send to a VIP speak to an endpoint. It takes the
// place of the programs that an earlier process left, without a gap. cgroup is a folder of cgroup v2: the sockets of
// the processes below it are meant; empty: all that this process can see.
func (d *Datapath) AttachSockets(cgroup string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	root, err := cgroupRoot(cgroup)
	if err != nil {
		return err
	}
	defer root.Close()
	s := &sockets{pinned: d.cfg.PinDir != ""}
	if s.programs, err = d.loadSockets(); err != nil {
		return err
	}
	if err := errors.Join(s.tell(&d.tables), s.attach(root, d.socketPins())); err != nil {
		return errors.Join(err, s.close())
	}
	d.sockets = s
	return nil
}

// DetachSockets takes away what an earlier process attached.
func (d *Datapath) DetachSockets() error {
	if d.cfg.PinDir == "" {
		return nil
	}
	return pins.RemoveLinks(d.socketPins())
}

func (d *Datapath) loadSockets() (*ebpf.Collection, error) {
	spec, err := bpf.LoadSock()
	if err != nil {
		return nil, fmt.Errorf("read socket object: %w", err)
	}
	if err := d.configure(spec); err != nil {
		return nil, err
	}
	cookie, err := pins.Cookie()
	if err != nil {
		return nil, fmt.Errorf("identify the network namespace: %w", err)
	}
	if err := spec.Variables["own_namespace"].Set(cookie); err != nil {
		return nil, fmt.Errorf("set the network namespace: %w", err)
	}
	opts := ebpf.CollectionOptions{MapReplacements: d.socketMaps()}
	shareMaps(spec, opts.MapReplacements, "openings", "sock_flows")
	if d.cfg.PinDir != "" {
		spec.Maps["sock_flows"].Pinning = ebpf.PinByName
		opts.Maps.PinPath = d.mapPins()
		if err := pins.DropOtherLayout(d.cfg.PinDir, "sock_flows", spec.Maps["sock_flows"]); err != nil {
			return nil, err
		}
	}
	made, err := makeMaps(spec, opts)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version: its sockets are forgotten
		if err = os.Remove(filepath.Join(d.mapPins(), "sock_flows")); err == nil {
			made, err = makeMaps(spec, opts)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make maps of socket programs: %w", err)
	}
	if d.cfg.PinDir != "" {
		if err := pins.RecordLayouts(d.cfg.PinDir, pinnedByName(spec.Maps)); err != nil {
			made.Close()
			return nil, err
		}
	}
	if made.Programs, err = loadPrograms(spec, made.Maps); err != nil {
		made.Close()
		return nil, fmt.Errorf("load socket programs: %w", err)
	}
	return made, nil
}

func (d *Datapath) socketMaps() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"endpoint_states":  d.obj.EndpointStates,
		"endpoints":        d.obj.Endpoints,
		"idle_timeouts":    d.obj.IdleTimeouts,
		"local_addresses":  d.obj.LocalAddresses,
		"persist_timeouts": d.obj.PersistTimeouts,
		"persists":         d.obj.Persists,
		"service_ranges":   d.obj.ServiceRanges,
		"service_states":   d.obj.ServiceStates,
		"services":         d.obj.Services,
		"slots":            d.obj.Slots,
		"vips":             d.obj.Vips,
	}
}

// socketPins has the pinned links of the socket hooks, by program.
func (d *Datapath) socketPins() string { return filepath.Join(d.cfg.PinDir, pins.Sockets) }

func (s *sockets) attach(root *os.File, folder string) error {
	if s.pinned {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return fmt.Errorf("make pin folder: %w", err)
		}
	}
	for _, h := range socketHooks() {
		l, err := s.attachOne(root, h.attach, s.programs.Programs[h.program], filepath.Join(folder, h.program))
		if err != nil {
			return fmt.Errorf("attach %s to the cgroup: %w", h.program, err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// attachOne makes a link, or gives the one that is there the new program, if it is of the same cgroup.
func (s *sockets) attachOne(root *os.File, at ebpf.AttachType, program *ebpf.Program, pin string) (link.Link, error) {
	if s.pinned {
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
	if s.pinned {
		if err := l.Pin(pin); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// sameCgroup: the inode of a cgroup is its id.
func sameCgroup(l link.Link, root *os.File) bool {
	info, err := l.Info()
	if err != nil || info.Cgroup() == nil {
		return false
	}
	var st unix.Stat_t
	return unix.Fstat(int(root.Fd()), &st) == nil && info.Cgroup().CgroupId == st.Ino
}

// cgroupRoot opens a folder of cgroup v2. The root needs to be mounted nowhere: `ip netns exec` hides where it is.
func cgroupRoot(path string) (*os.File, error) {
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("open the cgroup: %w", err)
		}
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || uint32(st.Type) != unix.CGROUP2_SUPER_MAGIC {
			return nil, errors.Join(fmt.Errorf("open the cgroup: %s is not of cgroup v2", path), f.Close())
		}
		return f, nil
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
