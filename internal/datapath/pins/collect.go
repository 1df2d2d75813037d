package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
)

// Collect removes what daemons in network namespaces that no longer exist have left beside dir: folders
// all of whose links have lost their interface.
func Collect(dir string) error {
	siblings, err := os.ReadDir(filepath.Dir(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list pin folders: %w", err)
	}
	var errs []error
	for _, e := range siblings {
		path := filepath.Join(filepath.Dir(dir), e.Name())
		if path != dir && abandoned(path) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// abandoned: it has links, and none is attached to an interface any more.
func abandoned(dir string) bool {
	links, err := os.ReadDir(filepath.Join(dir, Ingress))
	if err != nil || len(links) == 0 {
		return false
	}
	for _, e := range links {
		l, err := link.LoadPinnedLink(filepath.Join(dir, Ingress, e.Name()), nil)
		if err != nil {
			return false
		}
		index, err := Interface(l)
		l.Close()
		if err != nil || index != 0 {
			return false
		}
	}
	return true
}
