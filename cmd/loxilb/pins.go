package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"loxilb/internal/announce/speaker"
	"loxilb/internal/host/monotime"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/datapath/pins"
	"loxilb/internal/kernel/netdev"
)

// lockTimeout is how long a start waits for the lock of the pin directory: a killed daemon holds it
// until the kernel has ended the process, and `kill -9` does not wait for that.
const (
	lockTimeout = 2 * time.Second
	lockRetry   = 20 * time.Millisecond
)

// acquirePins locks the pin directory. It waits for a daemon that is ending.
func acquirePins(ctx context.Context, dir string) (*pins.Lock, error) {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		lock, err := pins.Acquire(dir)
		if inUse := (*pins.InUseError)(nil); !errors.As(err, &inUse) {
			return lock, err
		}
		if !monotime.Sleep(ctx, lockRetry) {
			return nil, err
		}
	}
}

// lockPins locks the pin directory for this process, and removes directories of ended namespaces.
func lockPins(ctx context.Context, dir string, log *slog.Logger) (*pins.Lock, error) {
	lock, err := acquirePins(ctx, dir)
	if inUse := (*pins.InUseError)(nil); errors.As(err, &inUse) {
		return nil, fmt.Errorf("%w; one daemon serves a network namespace: stop the other one first", err)
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

// handoverTime is how long a forced detach waits for the daemon to give up its VIPs. A daemon that
// is suspended does not.
const handoverTime = 3 * time.Second

// detach removes all that loxilb left in this network namespace. It refuses while a daemon runs
// there, unless forced.
func detach(ctx context.Context, network *netdev.Net, dir string, force bool) error {
	lock, err := pins.AcquireExisting(dir)
	inUse := (*pins.InUseError)(nil)
	switch {
	case err == nil:
		defer func() { _ = lock.Release() }()
	case errors.As(err, &inUse) && !force:
		return fmt.Errorf("%w: stop it first, or add --force", err)
	case !errors.As(err, &inUse) && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if inUse != nil {
		if lock = takeOver(ctx, dir); lock != nil {
			defer func() { _ = lock.Release() }()
		}
	}
	if err := datapath.RemovePins(dir); err != nil {
		return err
	}
	return errors.Join(network.Remove(ctx), speaker.RemoveLearnedRoutes())
}

// takeOver takes the lock from the running daemon, so the daemon does not recreate what detach
// removes. It returns nil if the daemon does not release the lock.
func takeOver(ctx context.Context, dir string) *pins.Lock {
	ctx, cancel := context.WithTimeout(ctx, handoverTime)
	defer cancel()
	lock, err := pins.TakeOver(ctx, dir)
	if err != nil {
		return nil
	}
	return lock
}
