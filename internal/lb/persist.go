package lb

import (
	"strconv"
	"time"
)

func (s Service) validatePersist() error {
	const allowed = "0s (the default, 10800s) to 86400s, whole seconds"
	bits := s.VIP.BitLen()
	switch {
	case s.Algorithm != Persist && s.PersistTimeout != 0:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is given, and select is "+s.Algorithm.String(), "0s, or select persist")
	case s.Algorithm != Persist && s.PersistPrefix != 0:
		return NewFieldError(FieldPersistPrefix, strconv.Itoa(int(s.PersistPrefix)), "is given, and select is "+s.Algorithm.String(), "0, or select persist")
	case s.PersistTimeout < 0 || s.PersistTimeout > MaxPersistTimeout:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is out of range", allowed)
	case s.PersistTimeout%time.Second != 0:
		return NewFieldError(FieldPersistTimeout, durationText(s.PersistTimeout), "is not whole seconds", allowed)
	case int(s.PersistPrefix) > bits:
		return NewFieldError(FieldPersistPrefix, strconv.Itoa(int(s.PersistPrefix)), "is longer than an address of the VIP's family",
			"0 (the whole address) to "+strconv.Itoa(bits))
	}
	return nil
}
