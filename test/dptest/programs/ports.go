package programs

import (
	"errors"
	"fmt"

	"loxilb/internal/kernel/datapath/bpf"
)

// LimitPorts limits each pool of an address of this machine to n ports; 0 restores the default.
func (r *Runner) LimitPorts(n int) error {
	return r.Collection.Maps.KeptPorts.Put(uint32(0), bpf.TcHostPorts{Limit: uint32(n)})
}

// ForgetPortPressure ends the pressure on source ports, of the machine and of services.
func (r *Runner) ForgetPortPressure() error {
	var none [bpf.TcPortLayoutPORT_PRESSURES]uint64
	v := &r.Collection.Variables
	return errors.Join(v.PortPressureUntil.Set(uint32(0)), v.PortPressures.Set(none))
}

// agePortPressure makes the pressure on source ports end earlier.
func (r *Runner) agePortPressure(ticks uint32) error {
	var until uint32
	var words [bpf.TcPortLayoutPORT_PRESSURES]uint64
	v := &r.Collection.Variables
	if err := v.PortPressureUntil.Get(&until); err != nil || until == 0 {
		return err
	}
	err := v.PortPressures.Get(&words)
	for i, word := range words {
		if word != 0 {
			words[i] = word>>32<<32 | uint64(uint32(word)-ticks)
		}
	}
	if err = errors.Join(err, v.PortPressures.Set(words), v.PortPressureUntil.Set(until-ticks)); err != nil {
		return fmt.Errorf("age pressure on source ports: %w", err)
	}
	return nil
}
