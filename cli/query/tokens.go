package query

import (
	"cmp"
	"slices"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// Tokens is muster tokens.
func Tokens() *tool.Command {
	return &tool.Command{
		Name: "tokens", Mixed: true,
		Summary: "list the tokens with which programs act as users, or revoke them",
		Usage: []string{
			"[--user NAME] [--json|--yaml]",
			"revoke TOKEN... [--reason TEXT]",
			"revoke --user NAME [--reason TEXT]",
		},
		About: `A token of a user (scontrol token) lets a program act as that user over REST, in the console and in SLURM_JWT
until it expires. This command lists the valid tokens by their ids; the tokens themselves are not stored and cannot be shown. revoke
takes effect immediately: calls with the token are refused, and streams that it opened end within a second. With --user all
tokens of a user that were issued so far are revoked, those of the site's identity provider included. Users list and revoke
their own tokens, administrators those of everybody. LAST USED is what the controller has seen since it started. SCOPE is the
part of the API that a token opens, such as pods for muster-kube; without one it may do what its user may.`,
		Options: []opt.Option{
			{Long: "user", Short: "u", Arg: "<name>", Help: "only tokens of this user; with revoke, all of them"},
			{Long: "reason", Arg: "<text>", Help: "reason, which is recorded in the ledger"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
		},
		Example: []tool.Example{
			{Line: "muster tokens", What: "lists the valid tokens"},
			{
				Line: "muster tokens revoke 5f0c2a9e31d7b864 --reason 'lost laptop'",
				What: "revokes one token",
			},
			{Line: "muster tokens revoke --user alice", What: "revokes all tokens of alice"},
		},
		Run: func(call *tool.Call) error {
			switch named := len(call.Operands); {
			case named == 0 && !call.Opts.On("reason"):
				return listTokens(call)
			case named > 0 && call.Operands[0] == "revoke" && (named > 1) != call.Opts.On("user"):
				return revokeTokens(call)
			}
			return &opt.UsageError{
				Command: "muster tokens",
				Text:    "expected nothing, revoke and tokens, or revoke --user and a name",
			}
		},
	}
}

func listTokens(call *tool.Call) error {
	var reply apiv1.ListUserTokensReply
	request := &apiv1.ListUserTokensRequest{User: call.Opts.Text("user")}
	if err := call.RPC(tool.MethodListTokens, request, &reply); err != nil {
		return err
	}
	return printTokens(call, reply.GetTokens())
}

func revokeTokens(call *tool.Call) error {
	var reply apiv1.RevokeUserTokensReply
	request := &apiv1.RevokeUserTokensRequest{
		Ids:    call.Operands[1:],
		User:   call.Opts.Text("user"),
		Reason: call.Opts.Text("reason"),
	}
	if err := call.RPC(tool.MethodRevokeTokens, request, &reply); err != nil {
		return err
	}
	return printTokens(call, reply.GetTokens())
}

// printTokens prints tokens by user, the oldest first.
func printTokens(call *tool.Call, tokens []*apiv1.UserTokenInfo) error {
	slices.SortFunc(tokens, func(a, b *apiv1.UserTokenInfo) int {
		return cmp.Or(
			cmp.Compare(a.GetUser(), b.GetUser()),
			cmp.Compare(a.GetIssued(), b.GetIssued()),
			cmp.Compare(a.GetId(), b.GetId()),
		)
	})
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, tokenTree(tokens)...)
	}
	rows := [][]string{{"TOKEN", "USER", "ISSUED", "EXPIRES", "LAST USED", "SCOPE", "ISSUED BY"}}
	for _, token := range tokens {
		used := "-"
		if token.GetLastUsed() > 0 {
			used = render.FormatTime(call, token.GetLastUsed())
		}
		by := token.GetIssuedBy()
		if token.GetIssuedOn() != "" {
			by += " on " + token.GetIssuedOn()
		}
		if token.GetLogin() != "" {
			by += " by " + token.GetLogin()
		}
		rows = append(rows, []string{
			token.GetId(),
			token.GetUser(),
			render.FormatTime(call, token.GetIssued()),
			render.FormatTime(call, token.GetExpires()),
			used,
			cmp.Or(token.GetScope(), "-"),
			by,
		})
	}
	return call.WriteOut([]byte(render.AlignedTexts(rows)))
}

// tokenTree is the answer as a document.
func tokenTree(tokens []*apiv1.UserTokenInfo) tree.Object {
	list := tree.List{}
	for _, token := range tokens {
		list = append(list, tree.Object{
			{Key: "token", Value: token.GetId()},
			{Key: "user", Value: token.GetUser()},
			{Key: "user_id", Value: token.GetUid()},
			{Key: "issue_time", Value: token.GetIssued() / int64(time.Second)},
			{Key: "expiry_time", Value: token.GetExpires() / int64(time.Second)},
			{Key: "issued_by", Value: token.GetIssuedBy()},
			{Key: "issued_on", Value: token.GetIssuedOn()},
			{Key: "login", Value: token.GetLogin()},
			{Key: "scope", Value: token.GetScope()},
			{Key: "last_use_time", Value: token.GetLastUsed() / int64(time.Second)},
		})
	}
	return tree.Object{{Key: "tokens", Value: list}}
}
