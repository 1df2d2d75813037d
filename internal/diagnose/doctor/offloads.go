package doctor

import (
	"fmt"

	"loxilb/internal/host/machine"
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

func feature(link string, f Feature, want bool, sure Certainty, why string) Finding {
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
	Name     string // in ethtool -K
	get, set uint32
	flag     uint32 // flag of features that share a word
}

// The offloads that matter here.
var (
	gro        = Feature{Name: "gro", get: 0x2b, set: 0x2c}
	txChecksum = Feature{Name: "tx", get: 0x16, set: 0x17}
	rxChecksum = Feature{Name: "rx", get: 0x14, set: 0x15}
	lro        = Feature{Name: "lro", get: 0x25, set: 0x26, flag: 1 << 15}
	rxVLAN     = Feature{Name: "rxvlan", get: 0x25, set: 0x26, flag: 1 << 8}
)

func (kernelNetwork) Feature(link string, f Feature) (on, known bool) {
	value, err := machine.Ethtool(link, f.get, 0)
	if f.flag != 0 {
		value &= f.flag
	}
	return value != 0, err == nil
}

func (kernelNetwork) SetFeature(link string, f Feature, on bool) error {
	var value uint32
	if f.flag != 0 {
		now, err := machine.Ethtool(link, f.get, 0)
		if err != nil {
			return err
		}
		value = now &^ f.flag
		if on {
			value |= f.flag
		}
	} else if on {
		value = 1
	}
	_, err := machine.Ethtool(link, f.set, value)
	return err
}
