package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"loxilb/internal/datapath"
	"loxilb/internal/datapath/pins"
	"loxilb/internal/netdev"
)

// takePins locks the pin directory for this process, and removes what namespaces that are gone have left beside it.
func takePins(dir string, log *slog.Logger) (*pins.Lock, error) {
	lock, err := pins.Acquire(dir)
	if inUse := (*pins.InUseError)(nil); errors.As(err, &inUse) {
		return nil, fmt.Errorf("%w; one daemon serves a network namespace: stop that one first", err)
	}
	if err != nil {
		return nil, err
	}
	cookie, err := pins.Cookie()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("identify the network namespace: %w", err), lock.Release())
	}
	log.Info("serving a network namespace", "netns_cookie", cookie, "pin_dir", dir)
	collected, err := pins.Collect(dir)
	if err != nil {
		log.Warn("pins of network namespaces that are gone were not all removed", "error", err)
	}
	if collected.Directories > 0 {
		log.Info("pins of network namespaces that are gone were removed", "namespaces", collected.Directories,
			"maps", collected.Maps, "links", collected.Links, "map_bytes", collected.Bytes)
	}
	return lock, nil
}

// detach removes all that loxilb left in this network namespace. It refuses while a daemon runs there, unless forced.
func detach(ctx context.Context, network *netdev.Net, dir string, force bool) error {
	lock, err := pins.AcquireExisting(dir)
	inUse := (*pins.InUseError)(nil)
	switch {
	case err == nil:
		defer func() { _ = lock.Release() }()
	case errors.As(err, &inUse) && !force:
		return fmt.Errorf("%w: stop it first, or add --force to take the data path away from it", err)
	case !errors.As(err, &inUse) && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := datapath.RemovePins(dir); err != nil {
		return err
	}
	return network.Remove(ctx)
}
