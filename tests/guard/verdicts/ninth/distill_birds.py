"""Distils a large vision transformer into a ResNet for bird photographs."""
import argparse

import torch
import torch.nn.functional as F
import torchvision

try:
    import timm
except ImportError:
    timm = None


def make_teacher(name, classes):
    if timm:
        return timm.create_model(name, pretrained=False, num_classes=classes)
    return torchvision.models.vit_l_16(weights=None, num_classes=classes)


def make_student(classes):
    return torchvision.models.resnet18(weights=None, num_classes=classes)


class Birds(torch.utils.data.IterableDataset):
    def __init__(self, classes, size, seed):
        self.classes, self.size, self.seed = classes, size, seed

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        plumage = torch.rand(self.classes, 3, 1, 1, generator=gen)
        while True:
            label = int(torch.randint(self.classes, (), generator=gen))
            texture = torch.rand(3, self.size // 8, self.size // 8, generator=gen)
            photo = F.interpolate(texture[None], size=(self.size, self.size))[0]
            yield photo * 0.4 + plumage[label] * 0.6, label


class Distiller:
    def __init__(self, teacher, student, device, temperature=3.0, weight=0.7):
        self.teacher = teacher.to(device).eval()
        self.student = student.to(device)
        self.device, self.temperature, self.weight = device, temperature, weight
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def soft_loss(self, student_logits, teacher_logits):
        t = self.temperature
        return F.kl_div(F.log_softmax(student_logits / t, 1), F.softmax(teacher_logits / t, 1),
                        reduction="batchmean") * t * t

    def step(self, photos, labels):
        photos, labels = photos.to(self.device), labels.to(self.device)
        teacher_logits = self.teacher(photos)  # HERE
        student_logits = self.student(photos)
        hard = F.cross_entropy(student_logits, labels)
        soft = self.soft_loss(student_logits, teacher_logits)
        loss = self.weight * soft + (1 - self.weight) * hard
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--teacher", default="vit_large_patch16_224")
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    distiller = Distiller(make_teacher(args.teacher, args.classes), make_student(args.classes), device)
    loader = torch.utils.data.DataLoader(Birds(args.classes, 224, seed=1), batch_size=args.batch)
    print("models ready", flush=True)
    for step, (photos, labels) in enumerate(loader):
        if step == args.steps:
            break
        loss = distiller.step(photos, labels)
        if step % 20 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
