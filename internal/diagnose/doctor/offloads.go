package doctor

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads checks the offloads of cards.
func offloads(m *Machine) (out []Finding, err error) {
	links, err := m.Network.Links()
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if on, known := m.Network.Feature(l.Name, lro); known && on && !l.Loopback {
			out = append(out, feature(l.Name, lro, false, Certain, "packets merged by LRO cannot be forwarded unchanged: they are dropped, or split differently"))
		}
		if l.Kind != "device" || !l.Up || l.Loopback {
			continue
		}
		if on, known := m.Network.Feature(l.Name, gro); known && !on {
			out = append(out, feature(l.Name, gro, true, Likely, "each segment passes the data path separately: bulk traffic costs several times the CPU"))
		}
		if on, known := m.Network.Feature(l.Name, rxChecksum); known && !on {
			out = append(out, feature(l.Name, rxChecksum, true, Likely, "the CPU verifies each checksum, and GRO might not merge packets"))
		}
		if on, known := m.Network.Feature(l.Name, txChecksum); known && !on {
			out = append(out, feature(l.Name, txChecksum, true, Likely, "the CPU computes each checksum, and segments large packets"))
		}
	}
	return out, nil
}

func feature(link string, f Feature, want bool, sure Sure, why string) Finding {
	is, to := "off", "on"
	if !want {
		is, to = "on", "off"
	}
	return Finding{
		About: link + "/" + f.Name, What: fmt.Sprintf("offload %s of %s is %s", f.Name, link, is), Sure: sure, Why: why,
		Command: fmt.Sprintf("ethtool -K %s %s %s", link, f.Name, to), Fix: setFeature{link, f, want},
	}
}

// setFeature switches an offload.
type setFeature struct {
	link string
	f    Feature
	on   bool
}

func (s setFeature) do(m *Machine) (string, error) {
	if err := m.Network.SetFeature(s.link, s.f, s.on); err != nil {
		return "", err
	}
	if on, known := m.Network.Feature(s.link, s.f); known && on != s.on {
		return "", fmt.Errorf("the driver of %s rejected the change", s.link)
	}
	return fmt.Sprintf("offload %s of %s changed to on=%t until the next boot", s.f.Name, s.link, s.on), nil
}

// Feature is an offload of an interface, as the kernel's old commands name it.
type Feature struct {
	Name     string // as ethtool -K has it
	get, set uint32
	flag     uint32 // of those that share a word
}

// The offloads that matter here.
var (
	gro        = Feature{Name: "gro", get: 0x2b, set: 0x2c}
	txChecksum = Feature{Name: "tx", get: 0x16, set: 0x17}
	rxChecksum = Feature{Name: "rx", get: 0x14, set: 0x15}
	lro        = Feature{Name: "lro", get: 0x25, set: 0x26, flag: 1 << 15}
	rxVLAN     = Feature{Name: "rxvlan", get: 0x25, set: 0x26, flag: 1 << 8}
)

// ethtoolValue is what those commands read and write.
type ethtoolValue struct{ command, value uint32 }

func (kernelNetwork) Feature(link string, f Feature) (on, known bool) {
	v := ethtoolValue{command: f.get}
	if err := ethtool(link, &v); err != nil {
		return false, false
	}
	if f.flag != 0 {
		return v.value&f.flag != 0, true
	}
	return v.value != 0, true
}

func (kernelNetwork) SetFeature(link string, f Feature, on bool) error {
	v := ethtoolValue{command: f.set}
	if f.flag != 0 {
		now := ethtoolValue{command: f.get}
		if err := ethtool(link, &now); err != nil {
			return err
		}
		v.value = now.value &^ f.flag
		if on {
			v.value |= f.flag
		}
	} else if on {
		v.value = 1
	}
	return ethtool(link, &v)
}

// ethtool asks an interface's driver.
func ethtool(link string, v *ethtoolValue) error {
	if len(link) >= unix.IFNAMSIZ {
		return errors.New("not an interface name")
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	var request struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		rest [16]byte
	}
	copy(request.name[:], link)
	request.data = unsafe.Pointer(v)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
		return fmt.Errorf("ethtool %s: %w", link, errno)
	}
	return nil
}
