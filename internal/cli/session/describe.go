package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// DescribedEvents is the number of events that describe shows of an object.
const DescribedEvents = 10

// Line writes one line of a description.
type Line func(name, value string)

// Describe returns a command that shows objects in full: properties, status and events.
func (k Kind[L, T]) Describe(o *Options) *cobra.Command {
	cmd := k.DescribeHelp.command()
	cmd.Use, cmd.Aliases = k.Word+" [NAME...]", k.Aliases
	f := &listFlags{}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.selector, "selector", "l", "", "show only objects whose fields match, as in get")
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = k.complete(o)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, err := k.query(f, args)
		if err != nil {
			return err
		}
		p, err := k.fetch(cmd.Context(), o, q)
		if err == nil {
			err = k.missing(&p, q)
		}
		if err != nil {
			return err
		}
		if o.IsRaw() {
			return o.PrintRaw(k.completeOutput(&p))
		}
		full := k.Full
		if full == nil {
			full = func(ctx context.Context, list []T) ([]string, error) { return k.full(ctx, o, list, p.items) }
		}
		texts, err := full(cmd.Context(), p.list)
		if err != nil {
			return err
		}
		return o.Print(strings.Join(texts, "\n"))
	}
	return cmd
}

// full describes objects by the properties in the answer, with their statuses and events.
func (k *Kind[L, T]) full(ctx context.Context, o *Options, list []T, items []json.RawMessage) ([]string, error) {
	texts := make([]string, len(list))
	for i := range list {
		document, err := documentOf(items[i])
		if err != nil {
			return nil, err
		}
		if members, ok := document.(map[string]any); ok && k.Correct != nil {
			k.Correct(&list[i], members)
		}
		var b strings.Builder
		describeValue(&b, "", document)
		if k.More != nil {
			more, err := k.More(ctx, &list[i])
			if err != nil {
				return nil, err
			}
			b.WriteString(more)
		}
		more, err := o.statusAndEvents(ctx, k.Object, k.Name(&list[i]), k.eventsOf(&list[i]))
		if err != nil {
			return nil, err
		}
		texts[i] = b.String() + more
	}
	return texts, nil
}

// eventsOf returns an object's names in events.
func (k *Kind[L, T]) eventsOf(t *T) []string {
	if k.Events != nil {
		return k.Events(t)
	}
	if k.Object == "" {
		return nil
	}
	return []string{k.Object + " " + k.Name(t)}
}

// describeValue writes the members of a JSON value, each on a line, nested ones indented.
func describeValue(b *strings.Builder, indent string, v any) {
	members, ok := v.(map[string]any)
	if !ok {
		fmt.Fprintf(b, "%s%s\n", indent, cellOf(v))
		return
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	plain := func(v any) int {
		switch v.(type) {
		case map[string]any, []any:
			return 1
		}
		return 0
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(plain(members[a])-plain(members[b]), cmp.Compare(strings.ToLower(a), strings.ToLower(b)))
	})
	for _, name := range names {
		title := indent + strings.ToUpper(name[:1]) + name[1:] + ":"
		switch v := members[name].(type) {
		case map[string]any:
			b.WriteString(title + "\n")
			describeValue(b, indent+"  ", v)
		case []any:
			describeList(b, title, indent, v)
		default:
			fmt.Fprintf(b, "%-18s %s\n", title, cellOf(v))
		}
	}
}

func describeList(b *strings.Builder, title, indent string, list []any) {
	if !slices.ContainsFunc(list, func(v any) bool { _, deep := v.(map[string]any); return deep }) {
		words := make([]string, len(list))
		for i := range list {
			words[i] = cellOf(list[i])
		}
		fmt.Fprintf(b, "%-18s %s\n", title, cmp.Or(strings.Join(words, ", "), "none"))
		return
	}
	b.WriteString(title + "\n")
	for _, v := range list {
		var one strings.Builder
		describeValue(&one, indent+"    ", v)
		text := one.String()
		b.WriteString(indent + "  - " + strings.TrimPrefix(text, indent+"    "))
	}
}

// statusAndEvents returns the status and the events of an object, if the server returns them.
func (o *Options) statusAndEvents(ctx context.Context, kind, key string, objects []string) (string, error) {
	if len(objects) == 0 {
		return "", nil
	}
	client, err := o.Client()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-18s %s\n", name+":", value) }
	if kind != "" {
		var statuses v1.StatusList
		body, err := o.Answer(client.GetStatuses(ctx, &v1.GetStatusesParams{Kind: kind, Name: key}))
		if err == nil {
			err = Decode(body, &statuses)
		}
		if err != nil {
			return "", UnlessRefused(err)
		}
		for i := range statuses.StatusAttr {
			DescribeStatus(line, &statuses.StatusAttr[i])
		}
	}
	b.WriteString("Events:\n")
	for _, object := range objects {
		var events v1.EventList
		body, err := o.Answer(client.GetEvents(ctx, &v1.GetEventsParams{Object: object, Limit: DescribedEvents}))
		if err == nil {
			err = Decode(body, &events)
		}
		if err != nil {
			return "", UnlessRefused(err)
		}
		for i := range events.EventAttr {
			b.WriteString(EventLine(&events.EventAttr[i]))
		}
	}
	return b.String(), nil
}

// UnlessRefused ignores a refusal of the server: the existing loxilb lacks some lists.
func UnlessRefused(err error) error {
	var f *Failure
	if errors.As(err, &f) && f.Code == ExitRefused {
		return nil
	}
	return err
}

// announcementText returns whether a prefix is announced, and why.
func announcementText(a *v1.Announcement) string {
	if a.Announced {
		return "announced: " + a.Reason
	}
	return "withdrawn: " + a.Reason
}

// AnnouncementCell returns whether the VIPs of an object are announced by BGP, and why not.
func AnnouncementCell(s *v1.Status) string {
	cell := "-"
	if s == nil {
		return cell
	}
	for i := range s.Announcements {
		if a := &s.Announcements[i]; !a.Announced {
			return announcementText(a)
		}
		cell = "announced"
	}
	return cell
}

// DescribeStatus writes the status of an object in the data path, and the error.
func DescribeStatus(line Line, s *v1.Status) {
	if s == nil {
		return
	}
	line("Status", s.State)
	line("Version", fmt.Sprintf("%d wanted, %s in the data path", s.Desired, Version(s.Applied)))
	if !s.Since.IsZero() {
		line("Since", Clock(s.Since))
	}
	for _, a := range s.Announcements {
		line("BGP "+a.Prefix, announcementText(&a)+", since "+Clock(a.Since))
	}
	for _, c := range s.Conditions {
		if c.Type == "BGP" && len(s.Announcements) > 0 {
			continue // part of the previous lines
		}
		line("Condition "+c.Type, c.Message)
	}
	if s.Error == "" {
		return
	}
	line("Error", s.Error)
	next := "-"
	if !s.NextTry.IsZero() {
		next = fmt.Sprintf("%s, in %s", Clock(s.NextTry), max(0, time.Until(s.NextTry).Round(time.Second)))
	}
	line("Next try", next)
	line("Failed tries", Tries(s))
}
