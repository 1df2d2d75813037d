package lb

import "strings"

// MaxDeviceName is the length of the longest name of an interface: IFNAMSIZ without the final zero.
const MaxDeviceName = 15

// ValidateDevice checks the name of an interface like the kernel.
func ValidateDevice(field, name string) error {
	switch {
	case name == "":
		return NewFieldError(field, name, "is empty", "the name of an interface")
	case len(name) > MaxDeviceName, name == ".", name == "..", strings.ContainsAny(name, "/: \t\n\v\f\r\x00"):
		return NewFieldError(field, name, "is not the name of an interface", "1 to 15 characters without /, : and space")
	}
	return nil
}
