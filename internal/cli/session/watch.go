package session

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/listing"
)

// watchPause is the time for which changes are collected before they are shown.
const watchPause = 200 * time.Millisecond

// watcher shows changes of a list: it receives events, and requests their objects.
type watcher[L, T any] struct {
	kind    *Kind[L, T]
	options *Options
	query   *listing.Query
	table   *Table
	shown   map[string]string // last shown text of each object, by name
}

// watch prints the result of a query, and then its changes, until interrupted.
func (k *Kind[L, T]) watch(ctx context.Context, o *Options, f *listFlags, q *listing.Query) error {
	switch {
	case f.limit > 0 || f.after != "" || f.sortBy != "":
		return fmt.Errorf("--limit, --continue and --sort-by cannot be combined with --watch")
	case !slices.Contains([]string{"", "wide", "name", "json"}, o.format.word):
		return fmt.Errorf("--output %s cannot be combined with --watch (allowed: wide, name, json)", o.format.word)
	}
	w := &watcher[L, T]{kind: k, options: o, query: q, shown: map[string]string{}}
	w.table = k.Draw(new(L))
	w.table.bare = f.noHeaders
	events, failed := make(chan v1.Event, 64), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		failed <- o.Follow(ctx, func(client *v1.Client, asStream v1.RequestEditorFn) (*http.Response, error) {
			resp, err := client.GetEvents(ctx, &v1.GetEventsParams{}, asStream)
			if err == nil {
				events <- v1.Event{} // current objects are shown once changes are received
			}
			return resp, err
		}, func(item json.RawMessage) error {
			var e v1.Event
			if err := Decode(item, &e); err != nil {
				return err
			}
			select {
			case events <- e:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	for {
		select {
		case err := <-failed:
			return err
		case e := <-events:
			if err := w.follow(ctx, e, events); err != nil {
				return err
			}
		}
	}
}

// follow shows the objects of an event, and of events soon after it.
func (w *watcher[L, T]) follow(ctx context.Context, first v1.Event, events <-chan v1.Event) error {
	names, all := map[string]bool{}, false
	gather := func(e *v1.Event) {
		name, ours := strings.CutPrefix(e.Object, w.kind.Object+" ")
		switch {
		case w.kind.Object != "" && ours:
			names[name] = true
		case w.kind.Object == "" || e.Object == "" || e.Kind == "health":
			all = true
		}
	}
	gather(&first)
	for pause := time.After(watchPause); ; {
		select {
		case e := <-events:
			gather(&e)
			continue
		case <-pause:
		case <-ctx.Done():
			return nil
		}
		break
	}
	q := *w.query
	if !all {
		if len(names) == 0 {
			return nil
		}
		q.Names = nil
		for name := range names {
			q.Names = append(q.Names, name)
		}
	}
	p, err := w.kind.fetch(ctx, w.options, &q)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return w.show(&p, func(name string) bool { return all || names[name] })
}

// show prints changed objects, and reports the deletion of requested ones.
func (w *watcher[L, T]) show(p *page[T], asked func(name string) bool) error {
	k, there := w.kind, map[string]bool{}
	for i := range p.list {
		name := k.Name(&p.list[i])
		there[name] = true
		if len(w.query.Names) > 0 && !slices.ContainsFunc(w.query.Names, func(n string) bool { return k.called(&p.list[i], n) }) {
			continue
		}
		var one L
		*k.Items(&one) = p.list[i : i+1]
		rows := k.Draw(&one).rows
		text := fmt.Sprint(rows)
		if w.shown[name] == text {
			continue
		}
		w.shown[name] = text
		if err := w.print(name, rows, p.items[i]); err != nil {
			return err
		}
	}
	for name := range w.shown {
		if there[name] || !asked(name) {
			continue
		}
		delete(w.shown, name)
		if err := w.options.Print(w.flush() + k.Word + "/" + name + " is gone\n"); err != nil {
			return err
		}
	}
	return w.options.Print(w.flush())
}

func (w *watcher[L, T]) print(name string, rows [][]string, item json.RawMessage) error {
	switch w.options.format.word {
	case "name":
		return w.options.Print(w.kind.Word + "/" + name + "\n")
	case "json":
		return w.options.Print(string(item) + "\n")
	}
	for _, r := range rows {
		w.table.Add(r...)
	}
	return nil
}

// flush returns the pending rows, with the header the first time.
func (w *watcher[L, T]) flush() string {
	if word := w.options.format.word; word == "name" || word == "json" {
		return ""
	}
	return w.table.Chunk()
}
