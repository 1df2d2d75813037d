package main

import (
	"log/slog"

	"loxilb/internal/announce/speaker"
	"loxilb/internal/api/httpapi/objects"
	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
)

// loadGobgpFile stores the configuration file of the existing loxilb's gobgpd, unless BGP is
// already configured: stored objects take precedence.
func loadGobgpFile(state *desired.State, dir, host string, log *slog.Logger) {
	if now := state.Snapshot(); state.Speakers.Len(now)+state.BGPNeighbors.Len(now) > 0 {
		return
	}
	path := speaker.FindFile(dir, host)
	if path == "" {
		return
	}
	file, err := speaker.ReadFile(path)
	if err != nil {
		log.Error("file of gobgpd cannot be read", "file", path, "error", err)
		return
	}
	by := store.CommitOptions{Owner: objects.Owner, Author: store.Author{Who: "loxilb", From: path, Doing: "file of gobgpd"}}
	_, _, err = state.CommitBy(by, func(tx *store.Tx) error {
		put := func(kind, key string, err error) {
			if err != nil {
				log.Error("file of gobgpd: an object is refused", "file", path, "kind", kind, "key", key, "error", err)
			}
		}
		put("bgp", file.Speaker.Key(), state.Speakers.Put(tx, file.Speaker))
		putAll(tx, state.BGPSets, file.Sets, put)
		putAll(tx, state.BGPPolicies, file.Policies, put)
		putAll(tx, state.Applications, file.Applications, put)
		putAll(tx, state.BGPNeighbors, file.Neighbors, put)
		return nil
	})
	if err != nil {
		log.Error("file of gobgpd cannot be read", "file", path, "error", err)
		return
	}
	file.Log(log)
}

// putAll stores objects. A refused object does not keep the others from being stored.
func putAll[T any](tx *store.Tx, table store.Table[T], list []T, report func(kind, key string, err error)) {
	for _, object := range list {
		report(table.Name(), table.Key(object), table.Put(tx, object))
	}
}
