package loader

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// enumNames reads an enum of abi.h from the object: the names that labels and logs use, by value.
func enumNames(types *btf.Spec, enum, prefix string) (map[uint32]string, error) {
	var e *btf.Enum
	if err := types.TypeByName(enum, &e); err != nil {
		return nil, fmt.Errorf("find enum %s: %w", enum, err)
	}
	names := make(map[uint32]string, len(e.Values))
	for _, v := range e.Values {
		name := strings.TrimPrefix(v.Name, prefix)
		if name == "NONE" || name == "REASONS" {
			continue
		}
		names[uint32(v.Value)] = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	return names, nil
}
