package session

import (
	"context"
	"encoding/json"
	"net/http"

	"loxilb/internal/api/listing"
)

// chunk is the number of rows collected to determine the widths of columns.
const chunk = 1000

// stream prints a list as it arrives, holding only a chunk of it.
func (k *Kind[L, T]) stream(ctx context.Context, o *Options, f *listFlags, q *listing.Query) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	fields := k.fields()
	chosen := func(item json.RawMessage, t *T) (bool, error) {
		if err := Decode(item, t); err != nil {
			return false, err
		}
		return q.Where.Matches(func(path string) []string { return fields.Values(t, path) }), nil
	}
	resp, err := k.Fetch(client, ctx, withQuery(q))
	if o.format.asIs() {
		var choose func(json.RawMessage) (bool, error)
		if len(q.Where) > 0 {
			choose = func(item json.RawMessage) (bool, error) { return chosen(item, new(T)) }
		}
		return o.PrintList(resp, err, k.Key, choose)
	}
	next, err := k.chunks(o, f, resp, err, chosen)
	if err == nil {
		o.more(next)
	}
	return err
}

// chunks prints names or rows. The columns fit the rows printed so far.
func (k *Kind[L, T]) chunks(o *Options, f *listFlags, resp *http.Response, err error, chosen func(json.RawMessage, *T) (bool, error)) (next string, _ error) {
	var p page[T]
	var table *Table
	flush := func() error {
		switch o.format.word {
		case "name":
			return k.print(o, f, &p)
		case "custom-columns":
			if table == nil {
				table = f.cut(NewTable(o.format.headers...))
			}
			if err := o.format.addRows(table, p.items); err != nil {
				return err
			}
		default:
			var list L
			*k.Items(&list) = p.list
			rows := k.Draw(&list)
			if table == nil {
				table = f.cut(rows)
			} else {
				table.rows = rows.rows
			}
		}
		return o.Print(table.Chunk())
	}
	next, err = o.EachOf(resp, err, k.Key, func(item json.RawMessage) error {
		var t T
		if yes, err := chosen(item, &t); err != nil || !yes {
			return err
		}
		p.items, p.list = append(p.items, item), append(p.list, t)
		if len(p.list) < chunk {
			return nil
		}
		err := flush()
		p.items, p.list = p.items[:0], p.list[:0]
		return err
	})
	if err != nil {
		return "", err
	}
	if len(p.list) > 0 || table == nil {
		err = flush()
	}
	return next, err
}
