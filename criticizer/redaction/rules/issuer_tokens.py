# ruff: noqa: E501 - a table is read by its rows
"""Tokens recognised by their form: a prefix or a mark that one issuer uses.

One row is (kind, marks, body, flags). A mark is found by the prefilter, case-sensitively; the
body is matched from the mark's start, by RE2. Lower bounds are loose on purpose, so that a
token cut short by truncation is still found. Formats are those that the issuers document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from criticizer.redaction.patterns import compiled

RULESET: Final = "5"  # raise with every change that alters what is taken out

# A token of its issuer's full length is taken whatever its letters are (made-up ones run through the
# alphabet); a shorter one, which may be a token cut short or a word, has to look random.
# Flags: "r" the body must look random (marks that also start ordinary words), "d" it must have
# a digit, "n" five digits, "h" something that is not hexadecimal, "i" the mark may stand inside a word, "<" the token begins before the mark.
_TABLE: Final[tuple[tuple[str, str, str, str], ...]] = (
    # clouds
    ("aws-access-key", "AKIA ASIA ABIA ACCA", r"....[A-Z0-9]{8,}", "d"),
    ("aws-access-key", "amzn.mws.", r"amzn\.mws\.[0-9a-z-]{20,}", ""),
    ("aws-bedrock-key", "ABSK", r"ABSK[A-Za-z0-9+/]{40,}={0,2}", ""),
    ("aws-bedrock-key", "bedrock-api-key-", r"bedrock-api-key-[A-Za-z0-9+/=_-]{12,}", ""),
    ("aws-appsync-key", "da2-", r"da2-[a-z0-9]{16,}", "d"),
    ("google-api-key", "AIza", r"AIza[\w-]{16,}", ""),
    ("google-oauth", "ya29.", r"ya29\.[\w-]{12,}", ""),
    ("google-oauth", "GOCSPX-", r"GOCSPX-[\w-]{10,}", ""),
    ("google-oauth", "1//0", r"1//0[\w-]{20,}", "d"),
    ("azure-secret", "Q~", r"[\w.~-]{3}[0-9]Q~[\w.~-]{20,}", "<4"),
    ("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", r"do\w_v1_[a-f0-9]{12,}", ""),
    ("alibaba-key", "LTAI", r"LTAI[A-Za-z0-9]{12,}", "d"),
    ("tencent-key", "AKID", r"AKID[A-Za-z0-9]{24,}", "d"),
    ("yandex-key", "AQVN t1. y0_", r"(?:AQVN[\w-]{30,}|t1\.[A-Z0-9a-z_-]+={0,2}\.[A-Z0-9a-z_-]{60,}={0,2}|y0_[\w-]{40,})", "d"),
    ("cloudflare-token", "cfut_ cfat_ cfk_", r"cf\w{1,2}_[\w-]{20,}", ""),
    ("cloudflare-token", "v1.0-", r"v1\.0-[a-f0-9]{20,}-[a-f0-9]{40,}", ""),
    ("heroku-key", "HRKU-", r"HRKU-[\w-]{20,}", ""),
    ("fly-token", "fo1_ fm1_ fm1a_ fm1r_ fm2_ FlyV1", r"(?:fo1_[\w-]{20,}|fm[12][ar]?_[A-Za-z0-9+/]{40,}=*|FlyV1 [\w,+/=-]{20,})", ""),
    ("aws-session-token", "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz", r"(?:IQoJb3JpZ2lu|F[wQ]oGZXIvYXdz)[A-Za-z0-9+/=_%-]{24,}", ""),
    ("google-oauth", ":APA91b", r"AAAA[\w-]{7}:APA91b[\w-]{20,}", "<11"),
    ("azure-secret", "AZDO +ACR +AEh +ASb +AMC +ABa APIM AzCa AzFu AzSe ACDb AIoT JQQJ99", r"(?:[A-Za-z0-9+/-]{29,120})(?:AZDO|\+ACR|\+AEh|\+ASb|\+AMC|\+ABa|APIM|AzCa|AzFu|AzSe|ACDb|AIoT|JQQJ99)[A-Za-z0-9+/]{4,32}={0,2}", "r<120"),
    ("volcengine-key", "AKLT", r"AKLT[A-Za-z0-9_-]{24,}", "r"),
    ("vk-token", "vk1.a.", r"vk1\.a\.[\w-]{20,}", ""),
    ("exoscale-key", "EXO", r"EXO[a-f0-9]{20,}", "d"),
    ("upcloud-token", "ucat_", r"ucat_[A-Z0-9]{16,}", "d"),
    ("scaleway-key", "SCW", r"SCW[A-Z0-9]{12,}", "d"),
    # forges, registries, build
    ("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh\w_[A-Za-z0-9_.-]{10,}", ""),
    ("github-token", "github_pat_", r"github_pat_\w{10,}", ""),
    (
        "gitlab-token",
        "glpat- gldt- glft- glsoat- glrt- glrtr- glcbt- glptt- glagent- glimt- gloas- glffct- glwt-",
        r"gl[a-z]+-[\w.-]{7,}",
        "",
    ),
    ("gitlab-token", "GR1348941", r"GR1348941[\w-]{8,}", ""),
    ("sourcegraph-token", "sgp_ slk_ sgd_", r"s(?:gp|lk|gd)_(?:(?:local|[a-f0-9]{16})_)?[a-f0-9]{16,}", ""),
    ("octopus-key", "API-", r"API-[A-Z0-9]{24,}", "hd"),
    ("buildkite-token", "bkua_ bkpt_ bkct_ bkpi_ bkps_", r"bk\w\w_[A-Za-z0-9]{16,}", "d"),
    ("circleci-token", "CCIPAT_ CCIPRJ_", r"CCIP\w{2,3}_[A-Za-z0-9]{8,}(?:_[a-f0-9]{16,})?", "d"),
    ("cratesio-token", "cio", r"cio[A-Za-z0-9]{32}", "rc"),
    ("npm-token", "npm_", r"npm_[A-Za-z0-9]{30,}", ""),
    ("npm-token", "npm_", r"npm_[A-Za-z0-9]{16,}", "r"),
    ("pypi-token", "pypi-Ag", r"pypi-Ag[\w-]{12,}", ""),
    ("rubygems-token", "rubygems_", r"rubygems_[a-f0-9]{16,}", ""),
    ("docker-token", "dckr_pat_ dckr_oat_", r"dckr_\wat_[\w-]{12,}", ""),
    ("docker-token", "SWMTKN-1- SWMKEY-1-", r"SWM\w{3}-1-[\w+/-]{20,}", ""),
    ("clojars-token", "CLOJARS_", r"CLOJARS_[a-z0-9]{20,}", ""),
    ("artifactory-token", "AKCp", r"AKCp[A-Za-z0-9]{20,}", "d"),
    ("artifactory-token", "cmVmdGtuOj", r"cmVmdGtuOj[A-Za-z0-9+/=]{16,}", ""),
    ("atlassian-token", "ATATT3 ATCTT3 ATBB ATSTT3 ATOA", r"AT[A-Z]{2}T?[A-Za-z0-9_+/-]{12,}(?:(?:=|%3[dD])[A-Fa-f0-9]{8})?", "d"),
    ("bitbucket-token", "BBDC-", r"BBDC-[A-Za-z0-9+/@_-]{16,}", ""),
    ("sonar-token", "squ_ sqp_ sqa_", r"sq\w_[a-f0-9]{16,}", ""),
    ("postman-key", "PMAK- PMAT-", r"PMA\w-[A-Za-z0-9-]{16,}", ""),
    ("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{8,}\.atlasv1\.[\w-]{20,}", "<14"),
    ("pulumi-token", "pul-", r"pul-[a-f0-9]{30,}", ""),
    ("vault-token", "hvs. hvb. hvr.", r"hv\w\.[\w-]{16,}", ""),
    ("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"dp\.[a-z]+\.(?:[a-z_-]+\.)?[A-Za-z0-9]{16,}", ""),
    ("harness-token", "pat. sat.", r"[ps]at\.[\w-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{12,}", ""),
    ("netlify-token", "nfp_ nfc_ nfo_ nfu_", r"nf\w_[A-Za-z0-9_]{20,}", "r"),
    ("vercel-token", "vcp_ vci_ vca_ vcr_ vck_", r"vc\w_[A-Za-z0-9]{20,}", "r"),
    ("render-token", "rnd_", r"rnd_[A-Za-z0-9]{24,}", "r"),
    ("neon-token", "napi_", r"napi_[a-z0-9]{30,}", "d"),
    ("tailscale-key", "tskey-", r"tskey-(?:[a-z]+-)?[\w-]{16,}", "d"),
    ("k3s-token", "K10", r"K10[a-f0-9]{40,}(?:::[\w-]+:[\w-]{12,})?", ""),
    ("infracost-key", "ico-", r"ico-[A-Za-z0-9]{28,36}", "rc"),
    ("nebula-key", "dnkey-", r"dnkey-[\w=-]{24,}", "r"),
    ("endor-key", "endr+", r"endr\+[A-Za-z0-9-]{14,}", "d"),
    ("settlemint-token", "sm_aat_ sm_pat_ sm_sat_", r"sm_\wat_[A-Za-z0-9]{14,}", "d"),
    ("configcat-key", "configcat-sdk-", r"configcat-sdk-[0-9]/[\w-]{16,}(?:/[\w-]{16,})?", ""),
    ("databricks-token", "dapi dose dkea", r"d(?:api|ose|kea)[a-f0-9]{24,}(?:-[0-9])?", "d"),
    ("zuplo-key", "zpka_", r"zpka_[a-f0-9]{20,}(?:_[a-f0-9]+)?", "d"),
    ("scalingo-token", "tk-us-", r"tk-us-[\w-]{20,}", ""),
    ("prefect-token", "pnu_ pnb_", r"pn\w_[A-Za-z0-9]{20,}", "r"),
    ("snyk-token", "snyk_", r"snyk_(?:uat|sat)\.[\w.-]{16,}", ""),
    ("supabase-token", "sbp_ sb_secret_", r"sb(?:p|_secret)_[\w-]{16,}", ""),
    ("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"pscale_[a-z]+_[\w=.-]{16,}", ""),
    ("launchdarkly-key", "sdk- api- mob-", r"(?:sdk|api|mob)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", ""),
    # observability
    ("grafana-token", "glsa_ glc_", r"gl(?:sa|c)_[\w+/=-]{16,}", ""),
    ("grafana-token", "eyJrIjoi", r"eyJrIjoi[A-Za-z0-9]{20,}={0,2}", ""),
    ("sentry-token", "sntrys_ sntryu_", r"sntry\w_[A-Za-z0-9+/=_-]{16,}", ""),
    ("newrelic-key", "NRAK- NRJS- NRAA- NRII- NRRA- NRIQ-", r"NR\w\w-[\w-]{14,}", ""),
    ("dynatrace-token", "dt0c01. dt0s01. dt0s02. dt0s03. dt0a01.", r"dt0\w\d\d\.[A-Z0-9]{12,}(?:\.[A-Z0-9]{8,})?", ""),
    ("honeycomb-key", "hcaik_ hcaic_ hcxik_ hcxlk_ hcamk_ hcbik_", r"hc[a-z]{3}_[a-z0-9]{20,}", "d"),
    ("posthog-key", "phx_ phr_ phs_ phc_", r"ph\w_[A-Za-z0-9]{20,}", "r"),
    # chat, mail, work
    ("slack-token", "xoxa- xoxb- xoxp- xoxo- xoxr- xoxs- xoxe- xoxe. xoxc- xoxd- xapp- XOXB- XOXP-", r"[xX](?i:ox\w|app)[.-][\w.%+/-]{10,}", "n"),
    ("slack-webhook", "hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]{16,})", ""),
    ("discord-webhook", "/api/webhooks/", r"/api/webhooks/[0-9]{15,20}/([\w-]{20,})", "i"),
    ("teams-webhook", "webhook.office.com/", r"webhook\.office\.com/\w+/([\w@/-]{30,})", "i"),
    ("telegram-token", ":AA", r"(?:bot)?([0-9]{7,12}:AA[\w-]{28,})", "<15"),
    ("facebook-token", "EAA", r"EAA[A-Za-z0-9]{36,}", "d"),
    ("facebook-token", "IGQV", r"IGQV[\w-]{30,}", ""),
    ("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", r"A{21,}[A-Za-z0-9%]{30,}", "d"),
    ("notion-token", "ntn_ secret_", r"(?:ntn|secret)_[A-Za-z0-9]{30,}", "r"),
    ("linear-key", "lin_api_ lin_oauth_", r"lin_[a-z]+_[A-Za-z0-9]{16,}", ""),
    ("figma-token", "figd_ figo_ figu_", r"fig\w_[\w-]{20,}", ""),
    ("lark-token", "t-", r"t-[A-Za-z0-9]{20}[A-Za-z0-9_]{0,24}", "r"),
    ("intra-token", "s-s4t2ud- s-s4t2af-", r"s-s4t2\w\w-[a-f0-9]{20,}", ""),
    ("hubspot-token", "pat-na1- pat-na2- pat-eu1- pat-ap1-", r"pat-\w\w[0-9]-[a-f0-9]{8}-[a-f0-9-]{8,}", ""),
    ("intercom-token", "dG9rO", r"dG9rO[A-Za-z0-9+/]{40,}={0,2}", "r"),
    ("frameio-token", "fio-u-", r"fio-u-[\w=-]{30,}", ""),
    ("linkedin-secret", "WPL_AP1. WPL_AP0.", r"WPL_AP[0-9]\.[A-Za-z0-9]{12,}\.[A-Za-z0-9+/=]{6,}", ""),
    ("pinterest-token", "pina_ pinr_", r"pin\w_[A-Za-z0-9]{30,}", "r"),
    ("dropbox-token", "sl.", r"sl\.[\w-]{60,}", "d"),
    ("sendgrid-key", "SG.", r"SG\.[\w-]{10,}(?:\.[\w-]{4,})?", ""),
    ("mailgun-key", "key-", r"key-[a-f0-9]{24,}", ""),
    ("brevo-key", "xkeysib- xsmtpsib-", r"x\w+sib-[A-Za-z0-9-]{20,}", ""),
    ("resend-key", "re_", r"re_[A-Za-z0-9]{6,}_[A-Za-z0-9]{16,}", "r"),
    ("readme-key", "rdme_", r"rdme_[a-z0-9]{40,}", ""),
    ("typeform-token", "tfp_", r"tfp_[\w-]{30,}", ""),
    ("contentful-token", "CFPAT-", r"CFPAT-[\w-]{20,}", ""),
    # money, shops
    ("stripe-key", "sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ pk_test_ sk_prod_ ak_live_ ak_test_", r"\wk_[a-z]+_[A-Za-z0-9]{10,}", ""),
    ("stripe-key", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}", ""),
    ("square-token", "sq0atp- sq0csp- sq0idp-", r"sq0\w{3}-[\w-]{12,}", ""),
    ("shopify-token", "shpat_ shpca_ shppa_ shpss_ shpua_", r"shp\w\w_[a-fA-F0-9]{16,}", ""),
    ("flutterwave-key", "FLWSECK_ FLWSECK-", r"FLWSECK[_-][\w-]{12,}", ""),
    ("plaid-token", "access-sandbox- access-production- access-development-", r"access-[a-z]+-[0-9a-f]{8}-[0-9a-f-]{8,}", ""),
    ("razorpay-key", "rzp_live_ rzp_test_", r"rzp_[a-z]+_[A-Za-z0-9]{10,}", "d"),
    ("razorpay-key", "rzp_live_ rzp_test_", r"rzp_[a-z]+_[A-Za-z0-9]{14}", ""),
    ("square-token", "EAAA", r"EAAA[\w-]{50,}", "r"),
    ("woocommerce-key", "ck_ cs_", r"c[ks]_[a-f0-9]{32,}", "d"),
    ("lob-key", "live_ test_", r"(?:live|test)_(?:pub_)?[a-f0-9]{31,}", "d"),
    ("gocardless-token", "live_", r"live_[\w=-]{40,}", "r"),
    ("easypost-key", "EZAK EZTK", r"EZ[AT]K[A-Za-z0-9]{40,}", ""),
    ("shippo-key", "shippo_live_ shippo_test_", r"shippo_[a-z]+_[a-f0-9]{20,}", ""),
    ("paypal-token", "access_token$", r"access_token\$(?:production|sandbox)\$[0-9a-z]{10,}\$[0-9a-f]{20,}", ""),
    ("duffel-token", "duffel_", r"duffel_(?:test|live)_[\w=-]{30,}", ""),
    # models
    ("anthropic-key", "sk-ant-", r"sk-ant-[\w-]{10,}", ""),
    ("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None- sk-or- sk-lf- sk-litellm-", r"sk-[A-Za-z]+-[\w-]{12,}", ""),
    ("openai-key", "sk-", r"sk-[A-Za-z0-9_-]{20,}", "r"),
    ("huggingface-token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z]{26,40}", "c"),
    ("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{34,}", "d"),
    ("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{16,}", "r"),
    ("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{48,}", "d"),
    ("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{20,}", "r"),
    ("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{48,}", "d"),
    ("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{20,}", "r"),
    ("xai-key", "xai-", r"xai-[A-Za-z0-9]{30,}", "r"),
    ("replicate-token", "r8_", r"r8_[A-Za-z0-9]{37,}", "d"),
    ("replicate-token", "r8_", r"r8_[A-Za-z0-9]{24,}", "r"),
    ("langchain-key", "lsv2_", r"lsv2_[a-z]{2}_[a-f0-9]{20,}(?:_[a-f0-9]+)?", ""),
    ("llama-key", "llx-", r"llx-[\w-]{20,}", "r"),
    ("tavily-key", "tvly-", r"tvly-[\w-]{20,}", "r"),
    ("nvidia-key", "nvapi-", r"nvapi-[\w-]{30,}", "d"),
    ("pinecone-key", "pcsk_", r"pcsk_\w{30,}", "r"),
    ("fireworks-key", "fw_", r"fw_[A-Za-z0-9]{20,}", "rc"),
    ("voyage-key", "pa-", r"pa-[\w-]{40,}", "rc"),
    ("jina-key", "jina_", r"jina_[A-Za-z0-9]{30,}", "r"),
    ("cerebras-key", "csk-", r"csk-[a-z0-9]{30,}", "d"),
    ("firecrawl-key", "fc-", r"fc-[a-f0-9]{30,}", ""),
    ("salad-key", "salad_cloud_user_", r"salad_cloud_user_[A-Za-z0-9]{20,}", ""),
    ("riot-key", "RGAPI-", r"RGAPI-[0-9a-f]{8}-[0-9a-f-]{20,}", ""),
    ("freelancer-key", "flb_live_ flb_test_", r"flb_(?:live|test)_[A-Za-z0-9]{16,}", ""),
    ("cognition-key", "cog_", r"cog_[A-Za-z0-9]{30,}", ""),
    ("rootly-token", "rootly_", r"rootly_[a-f0-9]{40,}", ""),
    ("voiceflow-key", "VF.DM. VF.WS.", r"VF\.[A-Z]+\.[a-f0-9]{20,}\.[A-Za-z0-9]{12,}", ""),
    ("pubnub-key", "pub-c- sub-c- sec-c-", r"(?:pub|sub|sec)-c-[A-Za-z0-9-]{30,}", ""),
    ("budibase-key", "BBFF-", r"BBFF-[A-Za-z0-9_-]{24,}", ""),
    ("cosmo-key", "cosmo_", r"cosmo_[a-f0-9]{24,}", ""),
    ("zoho-token", "1000.", r"1000\.[a-f0-9]{24,}\.[a-f0-9]{24,}", ""),
    ("square-token", "live_auth_ test_auth_", r"(?:live|test)_auth_[A-Za-z0-9]{16,}", ""),
    ("password-hash", "$krb5asrep$ $krb5tgs$", r"\$krb5\w+\$[^\s\"']{20,}", ""),
    ("password-hash", "$8$", r"\$8\$[A-Za-z0-9./]{10,16}\$[A-Za-z0-9./]{30,}", ""),
    ("asana-token", "0/ 1/ 2/", r"[0-2]/[0-9]{15,17}(?:/[0-9]{15,17})?:[0-9a-f]{32}", ""),
    ("aws-access-key", "AKIA ASIA", r"A[KS]IA[A-Z2-7]{16}", ""),
    # the rest
    ("onepassword-token", "ops_eyJ A3-", r"(?:ops_eyJ[A-Za-z0-9+/=_-]{20,}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9-]{10,})", ""),
    ("age-key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{16,}", ""),
    ("nostr-key", "nsec1", r"nsec1[a-z0-9]{40,}", "d"),
    ("wallet-key", "xprv zprv yprv tprv", r"[xyzt]prv[A-Za-z0-9]{60,}", "d"),
    ("maxmind-key", "_mmk", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{24,}_mmk", "<36"),
    ("workplace-token", "wpat_", r"wpat_[A-Za-z0-9]{24,}", "r"),
    ("statsig-key", "secret-", r"secret-[A-Za-z0-9]{36,}", "r"),
    ("openshift-token", "sha256~", r"sha256~[\w-]{30,}", ""),
    ("salesforce-token", "00D", r"00D[A-Za-z0-9]{9,15}(?:![\w.]{20,})?", "hd"),
    ("adobe-token", "p8e-", r"p8e-[A-Za-z0-9]{24,}", ""),
    ("alchemy-key", "alcht_", r"alcht_[A-Za-z0-9]{16,}", ""),
    ("apify-token", "apify_api_", r"apify_api_[\w-]{20,}", ""),
    ("adafruit-key", "aio_", r"aio_[A-Za-z0-9]{20,}", "r"),
    ("spectral-token", "spu-", r"spu-[a-f0-9]{24,}", ""),
    ("prefixed-key", "sk_ pri_ pub_ sec_ tok_ key_ pat_ api_ rtm_", r"[a-z]{2,3}_(?:[a-z]{2,10}_){0,2}[a-f0-9]{28,}", ""),
    ("prefixed-key", "sk_ tok_ pat_", r"[a-z]{2,3}_[A-Za-z0-9]{30,}", "r"),
    ("mapbox-token", "sk.eyJ", r"sk\.eyJ[\w-]{10,}(?:\.[\w-]+)?", ""),
    ("ntlm-message", "TlRMTVNTUAA", r"TlRMTVNTUAA[A-Za-z0-9+/=]{16,}", ""),
    ("jwt", "eyJ eyA ewog ewoK ewog", r"e[yw][A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]{4,}={0,2}){1,4}", "j"),
    ("jwt", "eyJhbGciOi eyJ0eXAiOi eyJraWQiOi eyJlbmMiOi", r"eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*={0,2}){0,4}", ""),
    ("private-key", "LS0tLS1CRUdJTi LS0tLSBCRUdJTi", r"LS0tLS[A-Za-z0-9+/_-]{16,}={0,2}", "i"),
    ("password-hash", "$2a$ $2b$ $2y$", r"\$2\w\$[0-9]{2}\$[./A-Za-z0-9]{20,}", ""),
    ("password-hash", "$1$ $5$ $6$ $y$ $apr1$", r"\$\w{1,4}\$(?:rounds=[0-9]+\$)?[./A-Za-z0-9]{2,24}\$[./A-Za-z0-9]{16,}", ""),
    ("password-hash", "$argon2", r"\$argon2\w{1,2}\$v=[0-9]+\$[^$\s]{5,40}\$[A-Za-z0-9+/$=]{16,}", ""),
    ("password-hash", "pbkdf2_sha", r"pbkdf2_sha\w+\$[0-9]+\$[\w]+\$[A-Za-z0-9+/=]{16,}", ""),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenRule:
    """One row of the table, compiled. `back` is how far before the mark the token may begin."""

    kind: str
    mark: bytes
    pattern: Any
    back: int
    inside: bool
    needs_digit: bool
    needs_digits: bool
    not_hex: bool
    needs_random: bool
    needs_case: bool
    is_jwt: bool


def _compile() -> tuple[TokenRule, ...]:
    rules = []
    for kind, marks, body, flags in _TABLE:
        pattern = compiled(body.encode())
        back = int(flags.partition("<")[2] or 0) if "<" in flags else 0
        rules += [
            TokenRule(kind, mark.encode(), pattern, back, *(flag in flags for flag in "idnhrcj"))
            for mark in dict.fromkeys(marks.split())
        ]
    return tuple(rules)


TOKEN_RULES: Final = _compile()
_OTHER_KINDS: Final = """
airtable-token password secret api-key authorization cookie uri-password connection-string
smtp-credential cli-password private-key key-material certificate perforce-ticket twilio-key
mailgun-key mailchimp-key nuget-key discord-token vault-token high-entropy own-secret email
internal-host internal-ip key-bytes encoded-secret zhipu-key issuer-key
"""
KINDS: Final = frozenset(rule.kind for rule in TOKEN_RULES) | frozenset(_OTHER_KINDS.split())
