package nodesets

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// How long tokens are good, and when the next one is made.
const (
	userTokenLife  = 48 * spec.Hour
	userTokenEvery = 12 * time.Hour
	loginEvery     = 12 * time.Hour // a token of a machine is good for a day
	tokenRetry     = 15 * time.Second
)

// TokenSecret is a key of a Secret with a token for REST.
type TokenSecret struct{ Name, Key, User string }

// LoginSecret names the Secret with the tokens by which a cluster's login hosts join, each
// under the name of its pod.
func LoginSecret(cluster string) string { return cluster + "-login-enrolment" }

// tokens is what this process has made. It reads no Secret.
type tokens struct {
	logins  corelisters.PodNamespaceLister
	login   map[string]string    // by pod
	made    map[string]time.Time // by UID of the pod
	user    time.Time            // when the token of the user was made
	retryAt time.Time
}

func (k *Keeper) watchLogins(ctx context.Context) error {
	k.tokens.login, k.tokens.made = map[string]string{}, map[string]time.Time{}
	factory := informers.NewSharedInformerFactoryWithOptions(k.cfg.Kube, 0, informers.WithNamespace(k.cfg.Namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = ClusterLabel + "=" + k.cfg.Cluster + ",app.kubernetes.io/component=login"
		}))
	pods := factory.Core().V1().Pods()
	k.tokens.logins = pods.Lister().Pods(k.cfg.Namespace)
	informer := pods.Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("the login hosts were not read: %w", context.Cause(ctx))
	}
	return nil
}

// keepTokens makes the tokens that are due. What fails is tried again a little later.
func (k *Keeper) keepTokens(ctx context.Context) {
	t := &k.tokens
	if time.Now().Before(t.retryAt) {
		return
	}
	for what, keep := range map[string]func(context.Context) error{"login hosts": k.keepLogins, "REST": k.keepUserToken} {
		if err := keep(ctx); err != nil && ctx.Err() == nil {
			k.cfg.Log.Warn("no token was made", "for", what, "error", err)
			t.retryAt = time.Now().Add(tokenRetry)
		}
	}
}

// keepLogins has a token ready for each login host that may have to join: one that is new to
// this process, and later one that is not ready.
func (k *Keeper) keepLogins(ctx context.Context) error {
	t := &k.tokens
	if t.logins == nil {
		return nil
	}
	pods, err := t.logins.List(labels.Everything())
	if err != nil {
		return err
	}
	changed := false
	for _, pod := range pods {
		made, known := t.made[string(pod.UID)]
		if known && (isReady(pod) || time.Since(made) < loginEvery) {
			continue
		}
		rep := &apiv1.CreateTokenReply{}
		if err := k.cfg.Muster.Call(ctx, "CreateToken", &apiv1.CreateTokenRequest{Node: pod.Name, Login: true}, rep); err != nil {
			return fmt.Errorf("login host %s gets no token to join: %w", pod.Name, err)
		}
		t.login[pod.Name], t.made[string(pod.UID)] = rep.GetToken(), time.Now()
		changed = true
	}
	if !changed {
		return nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: LoginSecret(k.cfg.Cluster), Namespace: k.cfg.Namespace, Labels: map[string]string{ClusterLabel: k.cfg.Cluster}},
		StringData: t.login,
	}
	secrets := k.cfg.Kube.CoreV1().Secrets(k.cfg.Namespace)
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		clear(t.made)
	}
	return err
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// keepUserToken keeps the token for REST fresh. Other clusters may have theirs in the same
// Secret, under other keys.
func (k *Keeper) keepUserToken(ctx context.Context) error {
	want, t := k.cfg.Token, &k.tokens
	if want == nil || time.Since(t.user) < userTokenEvery {
		return nil
	}
	rep := &apiv1.CreateUserTokenReply{}
	if err := k.cfg.Muster.Call(ctx, "CreateUserToken", &apiv1.CreateUserTokenRequest{User: want.User, Lifetime: int64(userTokenLife)}, rep); err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{want.Key: base64.StdEncoding.EncodeToString([]byte(rep.GetToken()))}})
	if err != nil {
		return err
	}
	secrets := k.cfg.Kube.CoreV1().Secrets(k.cfg.Namespace)
	_, err = secrets.Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: want.Name, Namespace: k.cfg.Namespace},
			StringData: map[string]string{want.Key: rep.GetToken()},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("Secret %s: %w", want.Name, err)
	}
	t.user = time.Now()
	return nil
}
