package session

import (
	"context"
	"net/http"

	"github.com/spf13/cobra"

	v1 "loxilb/api/v1"
)

// Show asks for an object and prints it as a table, or as it is.
func Show[T any](o *Options, ask func(*v1.Client, context.Context, ...v1.RequestEditorFn) (*http.Response, error), draw func(*T) *Table) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		client, err := o.Client()
		if err != nil {
			return err
		}
		body, err := o.Answer(ask(client, cmd.Context()))
		if err != nil {
			return err
		}
		if o.AsIs() {
			return o.PrintRaw(body)
		}
		object := new(T)
		if err := Decode(body, object); err != nil {
			return err
		}
		return o.Print(draw(object).String())
	}
}
