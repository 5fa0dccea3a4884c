// Requests to the control server that this page comes from.

const KEY = "streamrt-control-token";
const LONGEST_MS = 10_000;

// `status` is that of HTTP; 0 if nothing answers.
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Without storage, as in some private windows, the token lasts until the page is left.
let token = "";
try {
  token = sessionStorage.getItem(KEY) ?? "";
} catch { /* see above */ }

export const hasToken = () => token !== "";

export function useToken(text) {
  token = text;
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch { /* see above */ }
}

export async function ask(method, path) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: token ? { Authorization: `Bearer ${token}` } : {},
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      signal: AbortSignal.timeout(LONGEST_MS),
    });
  } catch {
    throw new ApiError(0, "The application does not answer.");
  }
  let found = null;
  try {
    found = await answer.json();
  } catch { /* not JSON, or the connection broke: handled below */ }
  if (found === null || typeof found !== "object") {
    throw new ApiError(answer.ok ? 0 : answer.status, "The answer is not from an application of StreamRT.");
  }
  if (!answer.ok) throw new ApiError(answer.status, sentence(found));
  return found;
}

function sentence(problem) {
  const text = [problem.message, problem.advice].filter(Boolean).join(": ") || "The request failed.";
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}
