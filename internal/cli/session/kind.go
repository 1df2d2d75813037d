package session

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
	"loxilb/internal/api/listing"
	"loxilb/internal/lb"
)

// Kind describes the commands of a kind of objects T, which the server lists in an L.
type Kind[L, T any] struct {
	Word         string // for get, and before each name with -o name
	Aliases      []string
	GetHelp      Help   // of get
	DescribeHelp Help   // of describe
	Key          string // of the list in the answer; "": the answer is the list
	Fetch        func(*v1.Client, context.Context, ...v1.RequestEditorFn) (*http.Response, error)
	New          func() T // an object to decode into; nil: the zero value
	Items        func(*L) *[]T
	Name         func(*T) string   // for get; unique in the kind
	OtherNames   func(*T) []string // other names for get; nil: none
	Addresses    func(*T) []string // further names for get, which shells do not complete; nil: none
	Draw         func(*L) *Table
	Fields       map[string]string                            // names of fields, besides their paths
	Words        map[string][]string                          // allowed values of fields, by their paths
	ByServer     bool                                         // the server selects by names
	Served       bool                                         // the server selects, sorts and pages
	Unsorted     bool                                         // ... but does not sort
	Named        []string                                     // paths of fields with names of other objects
	Object       string                                       // the kind's name in events and statuses; "": it has none there
	Events       func(*T) []string                            // the object's names in events, if not the word and the name
	Full         func(context.Context, []T) ([]string, error) // descriptions of objects; nil: the answer, status and events
	Correct      func(*T, map[string]any)                     // changes the answer for a description; nil: unchanged
	More         func(context.Context, *T) (string, error)    // text of a description between answer and status; nil: none
	Called       string                                       // an object's name in errors; "": Word
	Hint         string                                       // appended to errors: how to name an object
	Quiet        func() bool                                  // whether a missing object is not an error; nil: it is
	Stream       bool                                         // the list may be too large to hold: it is printed as it arrives
	Watch        func(context.Context) error                  // follows changes, in place of events
}

// Help is the text of a command's help.
type Help struct{ Short, Long, Example string }

func (h Help) command() *cobra.Command {
	return &cobra.Command{Short: h.Short, Long: h.Long, Example: h.Example}
}

// listFlags are the flags of a command that lists objects.
type listFlags struct {
	selector, fields, sortBy, after string
	limit                           int
	watch, noHeaders                bool
}

// Get returns a command that shows the objects of a kind: all, named or selected ones.
func (k Kind[L, T]) Get(o *Options) *cobra.Command { return k.GetWith(o, k.GetHelp.command()) }

// GetWith is Get for a command with additional flags or checks.
func (k Kind[L, T]) GetWith(o *Options, cmd *cobra.Command) *cobra.Command {
	if cmd.Use == "" {
		cmd.Use, cmd.Aliases = k.Word+" [NAME...]", k.Aliases
	}
	f := &listFlags{}
	f.register(cmd)
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = k.complete(o)
	_ = cmd.RegisterFlagCompletionFunc("sort-by", k.completeFields)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if run != nil {
			if err := run(cmd, args); err != nil {
				return err
			}
		}
		q, err := k.query(f, args)
		if err != nil {
			return err
		}
		if f.watch && k.Watch != nil {
			return k.Watch(cmd.Context())
		}
		if f.watch {
			return k.watch(cmd.Context(), o, f, q)
		}
		return k.show(cmd.Context(), o, f, q)
	}
	return cmd
}

// Choose adds a flag that selects objects by a field to a get command; without a path, by the name.
func (k Kind[L, T]) Choose(cmd *cobra.Command, flag, help, path string) {
	value := cmd.Flags().String(flag, "", help)
	if words := k.Words[path]; len(words) > 0 {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails only for unknown flags
	}
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		words := k.Words[path]
		switch {
		case *value == "":
		case len(words) > 0 && !slices.Contains(words, *value):
			return lb.NewFieldError("--"+flag, *value, "is not known"+lb.DidYouMean(*value, words), strings.Join(words, ", "))
		case path == "":
			args = append(args, *value)
		default:
			selector := cmd.Flags().Lookup("selector").Value
			one := listing.Requirement{Field: path, Values: []string{*value}}
			if err := selector.Set(strings.TrimPrefix(selector.String()+","+one.String(), ",")); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
}

func (f *listFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.selector, "selector", "l", "", "show only objects whose fields match, such as name=web,state!=applied or state in (a,b); also FIELD^=PREFIX, notin, FIELD (not empty) and !FIELD; fields are those of -o json, or the end of their paths")
	fs.StringVar(&f.fields, "field-selector", "", "like --selector; objects must match both")
	fs.StringVar(&f.sortBy, "sort-by", "", "sort by this field; -FIELD sorts the largest first")
	if fs.Lookup("limit") == nil {
		fs.IntVar(&f.limit, "limit", 0, "show at most N; 0 shows all")
	}
	fs.StringVar(&f.after, "continue", "", "continue after the previous page, with the value printed below it")
	fs.BoolVar(&f.noHeaders, "no-headers", false, "omit the header line")
	if fs.Lookup("watch") == nil {
		fs.BoolVarP(&f.watch, "watch", "w", false, "then show changes until interrupted")
	}
}

func (k *Kind[L, T]) fields() *listing.Fields {
	if k.New != nil {
		return listing.FieldsOfObject(k.New(), k.Fields)
	}
	return listing.FieldsOf[T](k.Fields)
}

// query returns the query of flags and arguments.
func (k *Kind[L, T]) query(f *listFlags, names []string) (*listing.Query, error) {
	q := &listing.Query{Names: names, Limit: f.limit, Continue: f.after, Sort: f.sortBy}
	for flag, text := range map[string]string{"selector": f.selector, "field-selector": f.fields} {
		where, err := listing.ParseSelector(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		if err := where.Resolve(k.fields(), lb.PropertyText); err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		if err := k.checkWords(where); err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		q.Where = append(q.Where, where...)
	}
	if err := q.ResolveSort(k.fields()); err != nil {
		return nil, fmt.Errorf("--sort-by: %w", err)
	}
	if err := q.Check(); err != nil {
		return nil, fmt.Errorf("--%w", err)
	}
	return q, AtLeast(0, "limit", q.Limit)
}

// checkWords returns an error for values that a field never has.
func (k *Kind[L, T]) checkWords(where listing.Selector) error {
	for _, r := range where {
		words := k.Words[r.Field]
		for _, value := range r.Values {
			if value == "" {
				continue
			}
			if len(words) > 0 && !slices.Contains(words, value) {
				return lb.NewFieldError(r.Field, value, "is not known"+lb.DidYouMean(value, words), strings.Join(words, ", "))
			}
			if err := lb.CheckProperty(r.Field, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// page is the result of a query.
type page[T any] struct {
	whole []byte            // the answer
	items []json.RawMessage // the selected objects
	list  []T               // the selected objects, decoded
	all   bool              // the list is complete
	next  string            // the start of the next page
}

// fetch queries the server, and applies the parts of the query that the server does not support.
func (k *Kind[L, T]) fetch(ctx context.Context, o *Options, q *listing.Query) (p page[T], err error) {
	client, err := o.Client()
	if err != nil {
		return p, err
	}
	var edit []v1.RequestEditorFn
	if k.Served && !(k.Unsorted && q.Sort != "") {
		edit = append(edit, withQuery(q))
	}
	if p.whole, err = o.Answer(k.Fetch(client, ctx, edit...)); err != nil {
		return p, err
	}
	items, served, err := k.split(p.whole)
	if err != nil {
		return p, err
	}
	list := make([]T, len(items))
	index := make(map[string]int, len(items))
	for i := range items {
		if k.New != nil {
			list[i] = k.New()
		}
		if err := Decode(items[i], &list[i]); err != nil {
			return p, err
		}
		index[k.Name(&list[i])] = i
	}
	chooser := k.chooser(list, index)
	local := *q
	if k.ByServer {
		local.Names = nil
	}
	p.next = chooser.Page(&local, func(i int) bool {
		p.items, p.list = append(p.items, items[i]), append(p.list, list[i])
		return true
	})
	if served != "" {
		p.next = served
	}
	p.all = len(p.items) == len(items) && q.Sort == ""
	return p, nil
}

// chooser returns the list of the objects' positions; index has the positions by name.
func (k *Kind[L, T]) chooser(list []T, index map[string]int) listing.List[int] {
	fields := k.fields()
	return listing.List[int]{
		Rows: func(yield func(int) bool) {
			for i := range list {
				if !yield(i) {
					return
				}
			}
		},
		Key: func(i int) string { return k.Name(&list[i]) },
		Order: func(a, b string) int {
			x, known := index[a]
			y, also := index[b]
			if !known || !also { // the object is not on the previous page, so the server has omitted it
				return 1
			}
			return x - y
		},
		OtherNames: func(i int) []string { return k.otherNames(&list[i]) },
		Values:     func(i int, path string) []string { return fields.Values(&list[i], path) },
	}
}

// missing returns the error for a named object that does not exist.
func (k *Kind[L, T]) missing(p *page[T], q *listing.Query) error {
	for _, name := range q.Names {
		if k.ByServer && len(p.list) > 0 {
			break
		}
		if !slices.ContainsFunc(p.list, func(t T) bool { return k.called(&t, name) }) && q.Where == nil && q.Limit == 0 && q.Continue == "" && (k.Quiet == nil || !k.Quiet()) {
			return Refused("%s %q not found%s", cmp.Or(k.Called, k.Word), name, k.Hint)
		}
	}
	return nil
}

func (k *Kind[L, T]) called(t *T, name string) bool {
	return k.Name(t) == name || slices.Contains(k.otherNames(t), name)
}

func (k *Kind[L, T]) otherNames(t *T) (names []string) {
	for _, f := range []func(*T) []string{k.OtherNames, k.Addresses} {
		if f != nil {
			names = append(names, f(t)...)
		}
	}
	return names
}

// withQuery adds a query to a request.
func withQuery(q *listing.Query) v1.RequestEditorFn {
	return func(_ context.Context, r *http.Request) error {
		v := r.URL.Query()
		for name, value := range map[string]string{"name": listing.JoinNames(q.Names), "selector": q.Where.String(), "sortBy": q.Sort, "continue": q.Continue} {
			if value != "" {
				v.Set(name, value)
			}
		}
		if v.Del("limit"); q.Limit > 0 {
			v.Set("limit", strconv.Itoa(q.Limit))
		}
		r.URL.RawQuery = v.Encode()
		return nil
	}
}

// split returns the list of an answer, and the start of the next page.
func (k *Kind[L, T]) split(body []byte) (items []json.RawMessage, next string, err error) {
	if k.Key == "" {
		return items, "", Decode(body, &items)
	}
	var members map[string]json.RawMessage
	if err := Decode(body, &members); err != nil {
		return nil, "", err
	}
	if list, ok := members[k.Key]; ok {
		err = Decode(list, &items)
	}
	if after, ok := members["continue"]; ok && err == nil {
		err = Decode(after, &next)
	}
	return items, next, err
}

// show prints the result of a query.
func (k *Kind[L, T]) show(ctx context.Context, o *Options, f *listFlags, q *listing.Query) error {
	if k.Stream && q.Sort == "" && o.format.word != "jsonpath" {
		return k.stream(ctx, o, f, q)
	}
	p, err := k.fetch(ctx, o, q)
	if err == nil {
		err = k.missing(&p, q)
	}
	if err != nil {
		return err
	}
	if err := k.print(o, f, &p); err != nil {
		return err
	}
	o.more(p.next)
	return nil
}

// more prints how to get the next page.
func (o *Options) more(next string) {
	if next != "" && !o.format.asIs() {
		fmt.Fprintf(o.Env.Stderr, "More follows: use --continue=%s\n", next)
	}
}

func (k *Kind[L, T]) print(o *Options, f *listFlags, p *page[T]) error {
	switch o.format.word {
	case "json", "yaml":
		return o.PrintRaw(k.completeOutput(p))
	case "name":
		var b strings.Builder
		for i := range p.list {
			b.WriteString(k.Word + "/" + k.Name(&p.list[i]) + "\n")
		}
		return o.Print(b.String())
	case "jsonpath":
		document, err := documentOf(k.completeOutput(p))
		if err != nil {
			return err
		}
		if m, ok := document.(map[string]any); ok {
			m["items"] = m[k.Key] // as kubectl's users write it
		}
		text, err := o.format.execute(document)
		if err != nil {
			return err
		}
		return o.Print(text)
	case "custom-columns":
		t := f.cut(NewTable(o.format.headers...))
		if err := o.format.addRows(t, p.items); err != nil {
			return err
		}
		return o.Print(t.String())
	}
	var list L
	*k.Items(&list) = p.list
	t := f.cut(k.Draw(&list))
	if !o.Compat() {
		t.compact(o.format.word == "wide")
	}
	return o.Print(t.String())
}

// cut removes the header if --no-headers is given.
func (f *listFlags) cut(t *Table) *Table {
	t.bare = f.noHeaders
	return t
}

// completeOutput returns the answer with the selected objects.
func (k *Kind[L, T]) completeOutput(p *page[T]) []byte {
	if p.all && p.next == "" {
		return p.whole
	}
	if p.items == nil {
		p.items = []json.RawMessage{}
	}
	if k.Key == "" {
		return Raw(p.items)
	}
	answer := map[string]any{k.Key: p.items}
	if p.next != "" {
		answer["continue"] = p.next
	}
	return Raw(answer)
}

// complete completes the names of existing objects.
func (k *Kind[L, T]) complete(o *Options) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		var names []string
		var list []T
		for _, q := range k.prefixQueries(begin) {
			p, err := k.fetch(cmd.Context(), o, q)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			list = append(list, p.list...)
		}
		for i := range list {
			all := []string{k.Name(&list[i])}
			if k.OtherNames != nil {
				all = append(all, k.OtherNames(&list[i])...)
			}
			for _, name := range all {
				if name != "" && strings.HasPrefix(name, begin) && !slices.Contains(args, name) {
					names = append(names, name)
				}
			}
		}
		slices.SortFunc(names, listing.Compare)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// completed bounds the names offered to a shell, as a list may be large.
const completed = 200

// prefixQueries returns queries for the objects whose names have a prefix.
func (k *Kind[L, T]) prefixQueries(begin string) (list []*listing.Query) {
	if !k.Served {
		return []*listing.Query{{}}
	}
	for _, path := range k.Named {
		q := &listing.Query{Limit: completed}
		if begin != "" {
			q.Where = listing.Selector{{Field: path, Prefix: true, Values: []string{begin}}}
		}
		list = append(list, q)
	}
	return list
}

func (k *Kind[L, T]) completeFields(_ *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	names := slices.DeleteFunc(k.fields().Names(), func(n string) bool { return !strings.HasPrefix(n, begin) })
	return names, cobra.ShellCompDirectiveNoFileComp
}
